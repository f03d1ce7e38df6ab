//! The options that name a model.

pub(crate) mod source;
mod zoo;

use std::path::PathBuf;

use clap::Args;
use loadmaster_proto::model::import::MODEL_TYPES;
use loadmaster_proto::model::zoo::FAMILIES;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::create_profile_request::Subject;
use loadmaster_proto::wire::v1::model_source;

use super::parse;
use crate::failure::Failure;
use source::ModelFormat;
use zoo::ZooOptions;

/// A model: a family with its hyper-parameters, a stored model, or a file.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
#[expect(clippy::doc_markdown, reason = "these texts are the help of the options, printed as they are")]
pub(crate) struct ModelArgs {
    /// A family (`gpt2`, `llama`, `bert`, `vgg11`, `amoebanet_d`, `transgan`), or a stored model: `models/ID` or the
    /// id alone.
    #[arg(long, value_name = "MODEL", required_unless_present = "model_file")]
    model: Option<String>,
    /// A Hugging Face config.json, or a list of layers in JSON or YAML.
    #[arg(long, value_name = "PATH", conflicts_with = "model")]
    model_file: Option<PathBuf>,
    /// Format of --model-file [default: hf if it has a model_type, else layers].
    #[arg(long, value_enum, value_name = "FORMAT", requires = "model_file")]
    model_format: Option<ModelFormat>,
    /// Ignore keys of a config.json with an unknown meaning; notes list them [default: they are an error].
    #[arg(long, requires = "model_file")]
    ignore_unknown_keys: bool,

    #[command(flatten)]
    zoo: ZooOptions,
}

impl ModelArgs {
    /// The model to profile.
    pub(crate) fn subject(&self) -> Result<Subject, Failure> {
        let mut options = self.zoo.clone();
        let model = match (&self.model, &self.model_file) {
            (Some(model), _) => model.as_str(),
            (None, Some(path)) => {
                let sequence_length = options.sequence_length.take();
                options.all_are_taken("--model-file")?;
                return source::read(path, self.model_format, sequence_length, self.ignore_unknown_keys)
                    .map(Subject::Source);
            }
            (None, None) => return Failure::usage("--model or --model-file is required"),
        };
        let what = format!("--model {model}");
        let Some(taken) = options.take_of(model) else {
            let name = stored_name(model)?;
            options.all_are_taken(&what)?;
            return Ok(Subject::Model(name));
        };
        options.all_are_taken(&what)?;
        let zoo = v1::ZooModel { family: model.to_owned(), options: Some(taken?) };
        Ok(Subject::Source(v1::ModelSource { source: Some(model_source::Source::Zoo(zoo)) }))
    }
}

/// The name of a stored model. An id alone is taken for one where it begins with a family, as ids do
/// that are derived from models: a mistyped family is more likely than any other id.
fn stored_name(text: &str) -> Result<String, Failure> {
    let derived = |family: &str| {
        // As `Model::id` writes it.
        let family = family.replace('_', "-");
        text.strip_prefix(&family).is_some_and(|rest| rest.starts_with('-'))
    };
    let plausible = text.contains('/') || FAMILIES.iter().chain(&MODEL_TYPES).any(|family| derived(family));
    parse::model(text).ok().filter(|_| plausible).ok_or_else(|| {
        Failure::Usage(format!(
            "--model {text} is neither a model family ({}) nor a stored model. Use a family, or models/ID.",
            FAMILIES.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::model::import::ModelSource;

    use super::*;
    use crate::verbs::tests::parsed;

    fn subject(options: &str) -> Result<Subject, Failure> {
        parsed::<ModelArgs>(options).unwrap().subject()
    }

    #[test]
    fn a_stored_model_may_be_named_by_its_id() {
        for line in ["--model vgg11-1f3a", "--model models/vgg11-1f3a"] {
            assert_eq!(subject(line).unwrap(), Subject::Model("models/vgg11-1f3a".to_owned()));
        }
        for line in ["--model models/mine", "--model amoebanet-d-1f", "--model qwen3-1f"] {
            assert!(matches!(subject(line), Ok(Subject::Model(_))), "{line}");
        }
        for wrong in ["--model profiles/x", "--model resnet9000", "--model gpt2x-1"] {
            assert!(matches!(subject(wrong), Err(Failure::Usage(_))), "{wrong}");
        }
    }

    /// Every family takes its own options, and what is sent builds the model.
    #[test]
    fn every_family_can_be_asked_for() {
        for (line, parameters) in [
            ("--model vgg11", 132_863_336),
            ("--model gpt2 --blocks 12", 124_439_808),
            ("--model bert --dropout 0 --classes 2", 109_483_778),
            ("--model llama --sequence-length 128", 6_738_415_616),
            (
                "--model llama --hidden-size 8192 --heads 64 --key-value-heads 8 --blocks 80 \
                 --feed-forward-size 28672",
                68_976_648_192,
            ),
            ("--model amoebanet_d --cells 36 --filters 544", 1_055_832_376),
            ("--model transgan --blocks 5,4,2", 83_260_867),
        ] {
            let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
            let Subject::Source(source) = subject(&line).unwrap() else { panic!("{line}") };
            let model = ModelSource::try_from(source).unwrap().build().unwrap();
            assert_eq!(model.parameter_count(), parameters, "{line}");
        }
    }

    #[test]
    fn an_option_of_another_model_is_refused() {
        assert!(
            matches!(subject("--model vgg11 --heads 4"), Err(Failure::Usage(e)) if e.contains("--heads"))
        );
        for wrong in [
            "--model gpt2 --classes 4",
            "--model models/stored --classes 4",
            "--model llama --dropout 0.1",
            "--model bert --tied-head",
            "--model amoebanet_d --blocks 4",
            "--model gpt2 --blocks 5,4,2",
            "--model transgan --blocks 5",
            "--model-file config.json --blocks 5",
        ] {
            assert!(matches!(subject(wrong), Err(Failure::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn a_model_is_named_once() {
        for wrong in ["", "--model gpt2 --model-file f", "--model-format hf"] {
            assert!(parsed::<ModelArgs>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn zero_is_not_the_default() {
        assert!(parsed::<ModelArgs>("--model gpt2 --blocks 0").is_err());
    }
}
