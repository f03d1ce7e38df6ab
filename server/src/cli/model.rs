//! `loadmaster model`, and the options that name a model to profile.

use clap::{Args, Subcommand};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::run_profile_request::Subject;
use loadmaster_proto::wire::v1::{model_source, zoo_model};
use loadmaster_proto::zoo::FAMILIES;

use super::client::models;
use super::context::Context;
use super::error::Failure;
use super::page::{self, Limit};
use super::{help, parse};

/// Verbs of models.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Stored models, newest first.
    #[command(after_help = help::MODEL_LIST)]
    List(Limit),
    /// One model with its layers.
    #[command(visible_alias = "get", after_help = help::MODEL_SHOW)]
    Show {
        /// The model: `models/ID` or the id alone.
        #[arg(value_parser = parse::model)]
        name: String,
    },
    /// Store a model. The same model always gets the same name.
    #[command(after_help = help::MODEL_CREATE, allow_negative_numbers = true)]
    Create(Create),
}

/// See [`Verb::Create`].
#[derive(Debug, Args)]
pub(super) struct Create {
    #[command(flatten)]
    model: ModelArgs,

    /// Check and show the model without storing it.
    #[arg(long)]
    dry_run: bool,
}

/// A model: a family of the zoo with its hyper-parameters, or one that is stored.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub(super) struct ModelArgs {
    /// `vgg11`, `gpt2`, or a stored model: `models/ID` or the id alone.
    #[arg(long, value_name = "MODEL")]
    model: String,

    /// vgg11: height and width of the input [default: 224].
    #[arg(long, value_name = "PIXELS", value_parser = positive())]
    image_size: Option<i32>,
    /// vgg11: classes [default: 1000].
    #[arg(long, value_name = "N", value_parser = positive())]
    classes: Option<i32>,
    /// vgg11: width of the two hidden layers of the classifier [default: 4096].
    #[arg(long, value_name = "N", value_parser = positive())]
    classifier_width: Option<i32>,

    /// gpt2: transformer blocks [default: 12].
    #[arg(long, value_name = "N", value_parser = positive())]
    blocks: Option<i32>,
    /// gpt2: hidden size, a multiple of the heads [default: 768].
    #[arg(long, value_name = "N", value_parser = positive())]
    hidden_size: Option<i32>,
    /// gpt2: attention heads [default: 12].
    #[arg(long, value_name = "N", value_parser = positive())]
    heads: Option<i32>,
    /// gpt2: tokens per sample [default: 1024].
    #[arg(long, value_name = "N", value_parser = positive())]
    sequence_length: Option<i32>,
    /// gpt2: learned positions [default: 1024, or the sequence length where that is larger].
    #[arg(long, value_name = "N", value_parser = positive())]
    positions: Option<i32>,
    /// gpt2: vocabulary [default: 50257].
    #[arg(long, value_name = "N", value_parser = positive())]
    vocabulary_size: Option<i32>,
    /// gpt2: give the head a weight of its own.
    #[arg(long)]
    untied_head: bool,
    /// gpt2: dropout of embedding, attention and residuals [default: 0.1].
    #[arg(long, value_name = "SHARE")]
    dropout: Option<f64>,
}

/// On the wire 0 means "the default"; on the command line it is a mistake.
fn positive() -> clap::builder::RangedI64ValueParser<i32> {
    clap::value_parser!(i32).range(1..)
}

impl ModelArgs {
    /// The model to profile.
    pub(super) fn subject(&self) -> Result<Subject, Failure> {
        let options = match self.model.as_str() {
            "vgg11" => {
                self.refuse("vgg11", &self.gpt2_given())?;
                zoo_model::Options::Vgg(v1::VggOptions {
                    image_size: self.image_size.unwrap_or_default(),
                    classes: self.classes.unwrap_or_default(),
                    classifier_width: self.classifier_width.unwrap_or_default(),
                })
            }
            "gpt2" => {
                self.refuse("gpt2", &self.vgg_given())?;
                zoo_model::Options::Gpt2(v1::Gpt2Options {
                    blocks: self.blocks.unwrap_or_default(),
                    hidden_size: self.hidden_size.unwrap_or_default(),
                    heads: self.heads.unwrap_or_default(),
                    sequence_length: self.sequence_length.unwrap_or_default(),
                    positions: self.positions.unwrap_or_default(),
                    vocabulary_size: self.vocabulary_size.unwrap_or_default(),
                    untied_head: self.untied_head,
                    dropout: self.dropout,
                })
            }
            stored => {
                let name = stored_name(stored)?;
                self.refuse(&name, &[self.vgg_given().as_slice(), &self.gpt2_given()].concat())?;
                return Ok(Subject::Model(name));
            }
        };
        let zoo = v1::ZooModel { family: self.model.clone(), options: Some(options) };
        Ok(Subject::Source(v1::ModelSource { source: Some(model_source::Source::Zoo(zoo)) }))
    }

    fn vgg_given(&self) -> [(&'static str, bool); 3] {
        [
            ("--image-size", self.image_size.is_some()),
            ("--classes", self.classes.is_some()),
            ("--classifier-width", self.classifier_width.is_some()),
        ]
    }

    fn gpt2_given(&self) -> [(&'static str, bool); 8] {
        [
            ("--blocks", self.blocks.is_some()),
            ("--hidden-size", self.hidden_size.is_some()),
            ("--heads", self.heads.is_some()),
            ("--sequence-length", self.sequence_length.is_some()),
            ("--positions", self.positions.is_some()),
            ("--vocabulary-size", self.vocabulary_size.is_some()),
            ("--untied-head", self.untied_head),
            ("--dropout", self.dropout.is_some()),
        ]
    }

    /// An option that would silently change nothing is a mistake.
    fn refuse(&self, model: &str, given: &[(&str, bool)]) -> Result<(), Failure> {
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Failure::Usage(format!("--model {model} does not take {option}"))),
            None => Ok(()),
        }
    }
}

/// The name of a stored model. An id alone is taken for one where it begins with a family, as ids do
/// that are derived from models: a mistyped family is more likely than any other id.
fn stored_name(text: &str) -> Result<String, Failure> {
    let derived = |family: &&str| text.strip_prefix(*family).is_some_and(|rest| rest.starts_with('-'));
    let plausible = text.contains('/') || FAMILIES.iter().any(derived);
    parse::model(text).ok().filter(|_| plausible).ok_or_else(|| {
        Failure::Usage(format!(
            "--model {text}: is no family of the zoo ({}) and no stored model (models/ID)",
            FAMILIES.join(", ")
        ))
    })
}

pub(super) async fn run(context: &Context, verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::List(limit) => {
            let models = page::all(context, limit, async |page_size, page_token| {
                let request = v1::ListModelsRequest { page_size, page_token };
                context.client.call(request, async |channel, q| models(channel).list_models(q).await).await
            });
            context.output.print(&models.await?)
        }
        Verb::Show { name } => {
            let request = v1::GetModelRequest { name };
            let model =
                context.client.call(request, async |channel, q| models(channel).get_model(q).await).await?;
            context.output.print(&model)
        }
        Verb::Create(create) => {
            let source = match create.model.subject()? {
                Subject::Source(source) => Some(source),
                Subject::Model(name) => {
                    return Err(Failure::Usage(format!(
                        "{name} is stored already; name a family of the zoo"
                    )));
                }
            };
            let request = v1::CreateModelRequest { source, validate_only: create.dry_run };
            let model = context
                .client
                .call(request, async |channel, q| models(channel).create_model(q).await)
                .await?;
            if create.dry_run {
                context.remark("dry run: the model is not stored");
            }
            context.output.print(&model)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        model: ModelArgs,
    }

    fn subject(options: &str) -> Result<Subject, Failure> {
        Line::try_parse_from(format!("x {options}").split(' ')).unwrap().model.subject()
    }

    #[test]
    fn a_stored_model_may_be_named_by_its_id() {
        for line in ["--model vgg11-1f3a", "--model models/vgg11-1f3a"] {
            assert_eq!(subject(line).unwrap(), Subject::Model("models/vgg11-1f3a".to_owned()));
        }
        assert!(subject("--model models/mine").is_ok());
        for wrong in ["--model profiles/x", "--model resnet9000", "--model gpt2x-1"] {
            assert!(matches!(subject(wrong), Err(Failure::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn an_option_of_another_model_is_refused() {
        assert!(
            matches!(subject("--model vgg11 --heads 4"), Err(Failure::Usage(e)) if e.contains("--heads"))
        );
        assert!(matches!(subject("--model gpt2 --classes 4"), Err(Failure::Usage(_))));
        assert!(matches!(subject("--model models/stored --classes 4"), Err(Failure::Usage(_))));
    }

    #[test]
    fn zero_is_not_the_default() {
        assert!(Line::try_parse_from(["x", "--model", "gpt2", "--blocks", "0"]).is_err());
    }
}
