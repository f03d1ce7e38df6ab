//! What an error says would help, as questions that can be asked.

use crate::certificates::ask::Refused;
use crate::certificates::question::Question;
use crate::certificates::scene::{Fleet, Group, Scene};
use crate::certificates::words::{Recompute, Schedule, Shape, Spanning};

/// A remedy as it was told, and the question that follows it; none where the words are not known here.
#[derive(Debug)]
pub(crate) struct Remedy {
    pub(crate) option: String,
    pub(crate) follows: Option<(Scene, Question)>,
}

/// All remedies that an error names.
pub(crate) fn of(scene: &Scene, question: &Question, refused: &Refused) -> Vec<Remedy> {
    let told = refused.metadata.get("remedies").map_or("", String::as_str);
    let options = told.split("; ").filter(|option| !option.is_empty());
    options
        .map(|option| Remedy { option: option.to_owned(), follows: follow(scene, question, refused, option) })
        .collect()
}

fn follow(scene: &Scene, question: &Question, refused: &Refused, option: &str) -> Option<(Scene, Question)> {
    let (mut scene, mut question) = (scene.clone(), question.clone());
    if let Some((number, like)) =
        option.split_once("more nodes like ").or_else(|| option.split_once("more node like "))
    {
        match number.trim().parse() {
            Ok(count) => more_like(&mut scene, count, like.split_whitespace().next()?)?,
            Err(_) => more_nodes(&mut scene, refused)?,
        }
        return Some((scene, question));
    }
    let mut words = option.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "--allow-idle-devices" => question.may_idle = true,
            "--schedule" => {
                question.schedules.clear();
                question.schedule = Some(match words.next()? {
                    "1f1b" => Schedule::OneFOneB,
                    "gpipe" => Schedule::Gpipe,
                    _ => return None,
                });
            }
            "--recompute" => {
                question.policies.clear();
                question.recompute = Some(match words.next()? {
                    "none" => Recompute::None,
                    "stage" => Recompute::Stage,
                    "layer" => Recompute::Layer,
                    _ => return None,
                });
            }
            "--micro-batch-size" => {
                question.sizes.clear();
                question.micro_batch_size = Some(words.next()?.parse().ok()?);
            }
            "--micro-batches" => {
                question.global_batch = None;
                question.micro_batches = Some(words.next()?.parse().ok()?);
            }
            "--shape" => {
                let shape = serde_json::from_value::<Shape>(words.next()?.into()).ok()?;
                question.shape = Some(shape);
            }
            "--spanning" => {
                question.spanning = Some(match words.next()? {
                    "whole-nodes" => Spanning::WholeNodes,
                    "anywhere" => Spanning::Anywhere,
                    _ => return None,
                });
            }
            "--devices" => {
                let groups = words.next()?.split(',').map(|group| read_group(&scene, group));
                scene.fleet = Fleet::Groups(groups.collect::<Option<Vec<Group>>>()?);
            }
            _ => return None,
        }
    }
    Some((scene, question))
}

/// `COUNTxBYTES`, or `COUNTxBYTES:KIND`; without a kind it is the profile's.
fn read_group(scene: &Scene, text: &str) -> Option<Group> {
    let (size, kind) = text.split_once(':').unwrap_or((text, scene.kinds[0].name.as_str()));
    let (count, bytes) = size.split_once('x')?;
    let digits = bytes.trim_end_matches(|c: char| c.is_alphabetic());
    let unit: u64 = match &bytes[digits.len()..] {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    Some(Group {
        count: count.parse().ok()?,
        capacity: digits.parse::<u64>().ok()? * unit,
        kind: scene.kinds.iter().position(|own| own.name == kind)?,
    })
}

/// `2 more nodes like n3 in the cluster`.
fn more_like(scene: &mut Scene, count: usize, name: &str) -> Option<()> {
    let Fleet::Cluster(cluster) = &mut scene.fleet else { return None };
    let like = cluster.nodes.iter().find(|node| node.name == name)?.clone();
    let first = cluster.nodes.len();
    let more = (first..first + count)
        .map(|index| crate::certificates::scene::Node { name: format!("more{index}"), ..like.clone() });
    cluster.nodes.extend(more);
    Some(())
}

/// `12 devices instead of 8 (…more nodes like the last one in the cluster…`: like the last one that is listed.
fn more_nodes(scene: &mut Scene, refused: &Refused) -> Option<()> {
    let (before, _) = refused.message.split_once(" devices instead of ")?;
    let count: u32 = before.rsplit(' ').next()?.parse().ok()?;
    let Fleet::Cluster(cluster) = &mut scene.fleet else { return None };
    let last = cluster.nodes.last()?.clone();
    let there = |cluster: &crate::certificates::scene::Cluster| cluster.nodes.iter().map(|node| node.devices).sum::<u32>();
    while there(cluster) < count {
        let name = format!("more{}", cluster.nodes.len());
        cluster.nodes.push(crate::certificates::scene::Node { name, ..last.clone() });
    }
    (there(cluster) == count).then_some(())
}
