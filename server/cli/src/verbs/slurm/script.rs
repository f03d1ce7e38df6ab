//! `loadmaster slurm script`: a whole job.

use clap::Args;
use loadmaster_proto::wire::{address, v1};

use super::request::{Request, Site};
use super::task::Per;
use crate::failure::Failure;
use crate::input::parse;
use crate::output::write_stdout;
use crate::session::context::Context;
use crate::session::export::export;

/// See [`super::SlurmVerb::Script`].
#[derive(Debug, Args)]
pub(crate) struct WriteScript {
    /// The plan: `plans/ID` or the id alone.
    #[arg(value_name = "PLAN", value_parser = parse::plan)]
    name: String,

    /// The framework whose files the job writes, and its version after an @ [default: the plan's, newest version].
    #[arg(long, value_name = "FRAMEWORK[@VERSION]", value_parser = parse::framework)]
    framework: Option<parse::NamedFramework>,

    /// Whether the command is started for each rank or for each node.
    #[arg(long, value_enum, default_value_t = Per::Rank)]
    command_per: Per,

    #[command(flatten)]
    site: Site,

    /// Training command. It reads its rank and its devices from the environment. The script appends the options of the framework
    /// that the plan fixes: `--deepspeed_config` for deepspeed, the model and its parallelism for megatron.
    #[arg(value_name = "COMMAND", last = true, required = true)]
    command: Vec<String>,
}

/// What a script is made of.
#[derive(Debug)]
struct Script<'a> {
    request: &'a Request,
    /// `plans/{plan}`.
    plan: &'a str,
    /// `deepspeed@0.19`.
    framework: &'a str,
    /// Of the planner.
    address: &'a str,
    per: Per,
    /// Whether files of the export are imported by programs.
    has_modules: bool,
    command: &'a [String],
    /// Whether that is accelerate's framework, whose settings stand in front of the program.
    is_accelerate: bool,
    /// What of the plan stands behind the command.
    options: &'a [PlanOption],
}

/// An option of a training program that says something of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PlanOption {
    /// As it stands.
    Word(String),
    /// What stands in front of a file of the export, and the file.
    File(String, String),
}

impl WriteScript {
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let framework = self.framework.clone().unwrap_or_default();
        let request = v1::ExportPlanRequest {
            name: self.name.clone(),
            framework: framework.id,
            framework_version: framework.version,
            ..v1::ExportPlanRequest::default()
        };
        let export = export(context, request).await?;
        check_is_started(&export.framework, self.command_per, &self.command)?;
        let options = plan_options(&export);
        let (request, remarks) = Request::of(&export, &self.site)?;
        remarks
            .iter()
            .chain(export.warnings.iter().map(|warning| &warning.message))
            .for_each(|remark| context.remark(&loadmaster_show::text::plain(remark)));
        if self.command_per == Per::Node && request.components() > 1 {
            return Failure::usage(
                "--command-per node: a launcher starts the same number of ranks on each node, but the plan's nodes \
                 have different numbers. Leave --command-per out, or use a plan with the same \
                 number of ranks on each node.",
            );
        }
        let script = Script {
            request: &request,
            plan: &export.plan,
            framework: &format!("{}@{}", export.framework, export.framework_version),
            address: context.client.address(),
            per: self.command_per,
            has_modules: export.files.iter().any(|file| file.name.ends_with(".py")),
            command: &self.command,
            is_accelerate: export.framework == "accelerate",
            options: &options,
        };
        write_stdout(script.text().as_bytes())?;
        if address::is_local(script.address) {
            context.remark(&format!(
                "the job connects to the planner at {}, an address that other nodes cannot reach. Submit the job with \
                 LOADMASTER_ADDRESS set to an address that all nodes reach, or write the script with `--address`.",
                script.address
            ));
        }
        context.link(&export.plan);
        Ok(())
    }
}

/// What an exported command has behind its program.
fn plan_options(export: &v1::ExportPlanResponse) -> Vec<PlanOption> {
    let words = &export.command;
    let module = words.iter().position(|word| word == "-m").map(|at| at + 1);
    let program = module.or_else(|| words.iter().position(|word| word.ends_with(".py")));
    let behind = program.and_then(|at| words.get(at + 1..)).unwrap_or_default();
    let option = |word: &String| {
        let (before, value) = word.split_at(word.find('=').map_or(0, |at| at + 1));
        let name = value.strip_prefix("./").unwrap_or(value);
        match export.files.iter().any(|file| file.name == name) {
            true => PlanOption::File(before.to_owned(), name.to_owned()),
            false => PlanOption::Word(word.clone()),
        }
    };
    behind.iter().map(option).collect()
}

/// # Errors
/// Nothing of the framework is started for each rank, or for each node, or what decides its training reaches no such process.
fn check_is_started(framework: &str, per: Per, command: &[String]) -> Result<(), Failure> {
    let starts_with =
        |words: &[&str]| command.iter().zip(words).filter(|(own, word)| own == *word).count() == words.len();
    let why = match (framework, per) {
        ("deepspeed", Per::Node) if starts_with(&["deepspeed"]) => {
            "--command-per node: one deepspeed launcher starts the ranks of all nodes, so launchers on each node would \
             train separately. Leave --command-per out, and name your training program as the command. The program \
             reads its rank from the environment."
        }
        ("accelerate", Per::Node) if starts_with(&["accelerate", "launch"]) => return Ok(()),
        ("torchgpipe", Per::Rank) => {
            "--framework torchgpipe: it runs as one process with all devices. Use `--command-per node`."
        }
        ("accelerate", _) => {
            "--framework accelerate: only `accelerate launch` passes accelerate's settings to the processes. Use \
             `accelerate launch` as the command, with `--command-per node`."
        }
        _ => return Ok(()),
    };
    Failure::usage(why)
}

impl Script<'_> {
    fn text(&self) -> String {
        let id = self.plan.rsplit('/').next().unwrap_or_default();
        let modules =
            if self.has_modules { "export PYTHONPATH=\"$folder${PYTHONPATH:+:$PYTHONPATH}\"\n" } else { "" };
        let (per, tasks) = match self.per {
            Per::Rank => ("", ""),
            Per::Node => (" --command-per node", " --ntasks-per-node=1 --ntasks=\"$SLURM_JOB_NUM_NODES\""),
        };
        let components = match self.request.components() {
            0 | 1 => String::new(),
            several => format!(" --het-group=0-{}", several - 1),
        };
        let options = self.options.iter().map(|option| match option {
            PlanOption::Word(word) => quoted(word),
            PlanOption::File(before, name) => format!("{}\"$folder\"/{}", quoted(before), quoted(name)),
        });
        let command: Vec<String> = match self.is_accelerate {
            true => self.by_accelerate(),
            false => self.command.iter().map(|word| quoted(word)).chain(options).collect(),
        };
        format!(
            r#"#!/usr/bin/env bash
{lines}# Written by Loadmaster for {plan} and {framework}.
set -euo pipefail

export LOADMASTER_ADDRESS=${{LOADMASTER_ADDRESS:-{address}}}
# Files of the plan, and the device of each rank, in a folder that all nodes share.
folder=$SLURM_SUBMIT_DIR/loadmaster-{id}
export LOADMASTER_PLACEMENT_FILE=$folder/placement-$SLURM_JOB_ID.json
{modules}
# 5: the plan does not fit with the bytes that the framework adds; `loadmaster slurm script` has reported it.
loadmaster plan export {plan} --framework {framework} --to "$folder" --overwrite --quiet >/dev/null || [[ $? == 5 ]]
loadmaster slurm place {plan} --framework {framework}
srun{components}{tasks} --kill-on-bad-exit=1 loadmaster slurm exec{per} -- {command}
"#,
            lines = self.request.lines(),
            plan = quoted(self.plan),
            framework = quoted(self.framework),
            id = quoted(id),
            address = quoted(self.address),
            command = command.join(" "),
        )
    }

    /// The command with what accelerate's framework reads of the plan, and with the place of each node, which only that node's shell
    /// knows.
    fn by_accelerate(&self) -> Vec<String> {
        let behind = self.command.iter().skip(2).map(|word| quoted(word));
        let launch = r#"bash -c 'exec accelerate launch --config_file="$0" --machine_rank="$NODE_RANK" --main_process_ip="$MASTER_ADDR" --main_process_port="$MASTER_PORT" "$@"' "$folder"/accelerate.yaml"#;
        std::iter::once(launch.to_owned()).chain(behind).collect()
    }
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./+,:@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::super::request::testing::{export, site};
    use super::*;

    fn script(nodes: &[(&str, &str, usize)], stages: &[usize], per: Per) -> String {
        let request = Request::of(&export(nodes, stages), &site(&[])).unwrap().0;
        written(&request, per, ["python", "it's.py"], &[])
    }

    fn written(request: &Request, per: Per, command: [&str; 2], options: &[PlanOption]) -> String {
        let command = command.map(str::to_owned);
        let script = Script {
            request,
            plan: "plans/x",
            framework: "deepspeed@0.19",
            address: "http://h:1",
            per,
            has_modules: true,
            command: &command,
            is_accelerate: false,
            options,
        };
        script.text()
    }

    fn exported(framework: &str, command: &[&str], files: &[&str]) -> v1::ExportPlanResponse {
        let file = |name: &&str| v1::ExportedFile { name: (*name).to_owned(), ..v1::ExportedFile::default() };
        v1::ExportPlanResponse {
            framework: framework.to_owned(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            files: files.iter().map(file).collect(),
            ..v1::ExportPlanResponse::default()
        }
    }

    /// A job's command has what the framework reads of the plan, whoever starts the ranks; files are where the job writes them.
    #[test]
    fn options_of_the_plan_stand_behind_the_command() {
        let told = |framework, command: &[&str], files: &[&str]| {
            let options = plan_options(&exported(framework, command, files));
            let request = Request::of(&export(&[("a", "A", 2)], &[2]), &site(&[])).unwrap().0;
            let text = written(&request, Per::Rank, ["python", "my train.py"], &options);
            text.lines().last().unwrap().split_once(" exec -- ").unwrap().1.to_owned()
        };
        let torchrun = ["torchrun", "--standalone", "--nproc-per-node=8"];
        let with = |rest: &[&'static str]| [&torchrun, rest].concat();
        assert_eq!(
            told("megatron", &with(&["pretrain_gpt.py", "--num-layers", "12", "--bf16"]), &["train.sh"]),
            "python 'my train.py' --num-layers 12 --bf16"
        );
        let deepspeed =
            ["deepspeed", "--num_gpus=4", "train.py", "--deepspeed", "--deepspeed_config=ds_config.json"];
        assert_eq!(
            told("deepspeed", &deepspeed, &["ds_config.json"]),
            "python 'my train.py' --deepspeed --deepspeed_config=\"$folder\"/ds_config.json"
        );
        let titan = with(&["-m", "torchtitan.train", "--module=loadmaster_plan", "--config=plan"]);
        assert_eq!(
            told("torchtitan", &titan, &["loadmaster_plan.py"]),
            "python 'my train.py' --module=loadmaster_plan --config=plan"
        );
        let galvatron = with(&["train_dist.py", "--galvatron_config_path=./galvatron_config.json"]);
        assert_eq!(
            told("galvatron", &galvatron, &["galvatron_config.json"]),
            "python 'my train.py' --galvatron_config_path=\"$folder\"/galvatron_config.json"
        );
        assert_eq!(told("colossal-ai", &with(&["train.py"]), &[]), "python 'my train.py'");
    }

    /// Whatever names reach a script, a shell reads them back as words.
    #[test]
    fn a_script_runs_no_part_of_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let request = Request::of(&export(&[("a", "A", 2)], &[2]), &site(&[])).unwrap().0;
        let hostile = "$(touch x);touch x|`touch x`'\"${x:=}\\&& touch x";
        let command = [hostile.to_owned()];
        let options =
            [PlanOption::Word(hostile.to_owned()), PlanOption::File("--a=".to_owned(), hostile.to_owned())];
        let script = Script {
            request: &request,
            plan: hostile,
            framework: hostile,
            address: hostile,
            per: Per::Rank,
            has_modules: false,
            command: &command,
            is_accelerate: false,
            options: &options,
        };
        // Programs of the script print their words.
        let stubs = "loadmaster() { printf '%s\\n' \"$LOADMASTER_ADDRESS\" \"$@\" >>words; }; \
                     srun() { printf '%s\\n' \"$@\" >>words; }; SLURM_SUBMIT_DIR=. SLURM_JOB_ID=7\n";
        let text = script.text().replace(" >/dev/null", "");
        let run = Command::new("bash")
            .args(["-c", &format!("{stubs}{text}")])
            .env_remove("LOADMASTER_ADDRESS")
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(run.status.success(), "{}\n{text}", String::from_utf8_lossy(&run.stderr));
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|of| of.unwrap().file_name()).collect();
        assert_eq!(left, ["words"], "{text}");
        let words = std::fs::read_to_string(folder.path().join("words")).unwrap();
        let whole = words.lines().filter(|word| *word == hostile).count();
        // The address and the plan of two calls, their frameworks, the command and its option.
        assert_eq!(whole, 8, "{words}");
        assert!(words.lines().any(|word| word.starts_with("--a=./loadmaster-") && word.ends_with(hostile)));
    }

    #[test]
    fn a_script_asks_binds_and_starts() {
        let text = script(&[("a", "A", 2), ("b", "A", 2)], &[2, 2], Per::Rank);
        assert!(text.starts_with("#!/usr/bin/env bash\n#SBATCH --comment=loadmaster:plans/x;"), "{text}");
        assert!(
            text.ends_with("srun --kill-on-bad-exit=1 loadmaster slurm exec -- python 'it'\\''s.py'\n"),
            "{text}"
        );
        let text = script(&[("a", "A", 2), ("b", "B", 4)], &[2, 4], Per::Rank);
        assert!(text.contains("srun --het-group=0-1 "), "{text}");
        let text = script(&[("a", "A", 2)], &[2], Per::Node);
        assert!(
            text.contains("--ntasks-per-node=1 ") && text.contains("exec --command-per node --"),
            "{text}"
        );
    }

    /// What accelerate reads of the plan stands in front of the program, with the place of the node, as a real shell runs it.
    #[test]
    fn accelerate_is_told_of_the_plan_and_of_its_node() {
        let request = Request::of(&export(&[("a", "A", 2), ("b", "A", 2)], &[2, 2]), &site(&[])).unwrap().0;
        let command = ["accelerate", "launch", "my train.py", "--lr=1"].map(str::to_owned);
        let script = Script {
            request: &request,
            plan: "plans/x",
            framework: "accelerate@1.15",
            address: "http://h:1",
            per: Per::Node,
            has_modules: true,
            command: &command,
            is_accelerate: true,
            options: &[],
        };
        let text = script.text();
        let line = text.lines().last().unwrap().split_once(" --command-per node -- ").unwrap().1;
        let shell = format!(
            "accelerate() {{ printf '%s\\n' \"$@\"; }}; export -f accelerate; {}",
            line.replace("exec accelerate", "accelerate")
        );
        let node = [("folder", "/f o"), ("NODE_RANK", "1"), ("MASTER_ADDR", "h7"), ("MASTER_PORT", "29500")];
        let told = Command::new("bash").args(["-c", &shell]).envs(node).output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        let words: Vec<&str> = told.lines().collect();
        let expected = [
            "launch",
            "--config_file=/f o/accelerate.yaml",
            "--machine_rank=1",
            "--main_process_ip=h7",
            "--main_process_port=29500",
            "my train.py",
            "--lr=1",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn what_would_start_without_the_plan_is_refused() {
        let check = |framework, per, command: &[&str]| {
            let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
            check_is_started(framework, per, &command)
        };
        assert!(check("accelerate", Per::Node, &["accelerate", "launch", "train.py"]).is_ok());
        for (per, command) in [
            (Per::Node, &["python", "train.py"]),
            (Per::Node, &["accelerate", "test"]),
            (Per::Rank, &["accelerate", "launch"]),
        ] {
            assert!(check("accelerate", per, command).is_err(), "{command:?}");
        }
        assert!(check("deepspeed", Per::Node, &["deepspeed", "train.py"]).is_err());
        assert!(check("deepspeed", Per::Rank, &["python", "train.py"]).is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// A real shell hands on every word as it was given.
        #[test]
        fn words_survive_a_shell(words in proptest::collection::vec("[ -~\\n]{0,12}", 1..5)) {
            let line = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
            let told = Command::new("sh").args(["-c", &format!("printf '%s\\0' {line}")]).output().unwrap();
            let expected: String = words.iter().map(|word| format!("{word}\0")).collect();
            prop_assert_eq!(String::from_utf8(told.stdout).unwrap(), expected);
        }
    }
}
