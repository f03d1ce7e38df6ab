//! The options that name a model.

pub(crate) mod source;

use std::path::PathBuf;

use clap::Args;
use loadmaster_proto::model::import::MODEL_TYPES;
use loadmaster_proto::model::zoo::FAMILIES;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::run_profile_request::Subject;
use loadmaster_proto::wire::v1::{model_source, zoo_model};

use super::parse;
use crate::failure::Failure;
use source::Format;

/// A model: a family of the zoo with its hyper-parameters, one that is stored, or a file.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
#[expect(clippy::doc_markdown, reason = "these texts are the help of the options, printed as they are")]
pub(crate) struct ModelArgs {
    /// `vgg11`, `gpt2`, `bert`, `llama`, `amoebanet_d`, `transgan`, or a stored model: `models/ID` or the
    /// id alone.
    #[arg(long, value_name = "MODEL", required_unless_present = "model_file")]
    model: Option<String>,
    /// A Hugging Face config.json, or a list of layers in JSON or YAML.
    #[arg(long, value_name = "PATH", conflicts_with = "model")]
    model_file: Option<PathBuf>,
    /// What the file is [default: hf where it has a model_type, else layers].
    #[arg(long, value_enum, value_name = "FORMAT", requires = "model_file")]
    model_format: Option<Format>,

    /// vgg11, amoebanet_d: height and width of the input [default: 224].
    #[arg(long, value_name = "PIXELS", value_parser = positive())]
    image_size: Option<i32>,
    /// vgg11, amoebanet_d, bert: classes [default: 1000; bert: 2].
    #[arg(long, value_name = "N", value_parser = positive())]
    classes: Option<i32>,
    /// vgg11: width of the two hidden layers of the classifier [default: 4096].
    #[arg(long, value_name = "N", value_parser = positive())]
    classifier_width: Option<i32>,

    /// amoebanet_d: L, the normal cells, a multiple of 3 [default: 18].
    #[arg(long, value_name = "N", value_parser = positive())]
    cells: Option<i32>,
    /// amoebanet_d: F, the filters, a multiple of 8 [default: 208].
    #[arg(long, value_name = "N", value_parser = positive())]
    filters: Option<i32>,

    /// gpt2, bert, llama: transformer blocks [default: 12; llama: 32]. transgan: those of its three
    /// groups, for example 5,4,2, which is the default.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = positive())]
    blocks: Vec<i32>,
    /// gpt2, bert, llama, transgan: hidden size, a multiple of the heads [default: 768; llama: 4096;
    /// transgan: 1024].
    #[arg(long, value_name = "N", value_parser = positive())]
    hidden_size: Option<i32>,
    /// gpt2, bert, llama, transgan: attention heads [default: gpt2: 12; bert: hidden size / 64; llama:
    /// hidden size / 128; transgan: 4].
    #[arg(long, value_name = "N", value_parser = positive())]
    heads: Option<i32>,
    /// llama: heads of keys and values, a divisor of the heads [default: the heads].
    #[arg(long, value_name = "N", value_parser = positive())]
    key_value_heads: Option<i32>,
    /// llama: width of the perceptron [default: 8/3 of the hidden size, rounded up to 256].
    #[arg(long, value_name = "N", value_parser = positive())]
    feed_forward_size: Option<i32>,
    /// gpt2, bert, llama, --model-file with hf: tokens per sample [default: 1024; bert: 512; llama: 4096;
    /// hf: the configuration's longest, at most 4096].
    #[arg(long, value_name = "N", value_parser = positive())]
    sequence_length: Option<i32>,
    /// gpt2, bert: learned positions [default: 1024, bert: 512, or the sequence length where that is
    /// larger].
    #[arg(long, value_name = "N", value_parser = positive())]
    positions: Option<i32>,
    /// gpt2, bert, llama: vocabulary [default: 50257; bert: 30522; llama: 32000].
    #[arg(long, value_name = "N", value_parser = positive())]
    vocabulary_size: Option<i32>,
    /// llama: base of the rotary positions [default: 10000].
    #[arg(long, value_name = "NUMBER")]
    rotary_base: Option<f64>,
    /// gpt2: give the head a weight of its own.
    #[arg(long)]
    untied_head: bool,
    /// llama: share the embedding's weight with the head.
    #[arg(long)]
    tied_head: bool,
    /// gpt2, bert: dropout of embedding, attention and residuals [default: 0.1].
    #[arg(long, value_name = "SHARE")]
    dropout: Option<f64>,

    /// transgan: size of the latent vector [default: 256].
    #[arg(long, value_name = "N", value_parser = positive())]
    latent_size: Option<i32>,
    /// transgan: height and width of the first group's image; the generated one is four times as large
    /// [default: 8].
    #[arg(long, value_name = "PIXELS", value_parser = positive())]
    bottom_size: Option<i32>,
}

/// On the wire 0 means "the default"; on the command line it is a mistake.
pub(crate) fn positive() -> clap::builder::RangedI64ValueParser<i32> {
    clap::value_parser!(i32).range(1..)
}

impl ModelArgs {
    /// The model to profile.
    pub(crate) fn subject(&self) -> Result<Subject, Failure> {
        let model = match (&self.model, &self.model_file) {
            (Some(model), _) => model.as_str(),
            (None, Some(path)) => {
                self.takes("--model-file", &["--sequence-length"])?;
                return source::read(path, self.model_format, self.sequence_length).map(Subject::Source);
            }
            (None, None) => return Err(Failure::Usage("name a --model or a --model-file".to_owned())),
        };
        let takes = |options: &[&str]| self.takes(&format!("--model {model}"), options);
        let options = match model {
            "vgg11" => {
                takes(&["--image-size", "--classes", "--classifier-width"])?;
                zoo_model::Options::Vgg(self.vgg())
            }
            "gpt2" => {
                takes(&[TRANSFORMER, &["--positions", "--untied-head", "--dropout"]].concat())?;
                zoo_model::Options::Gpt2(self.gpt2()?)
            }
            "bert" => {
                takes(&[TRANSFORMER, &["--positions", "--classes", "--dropout"]].concat())?;
                zoo_model::Options::Bert(self.bert()?)
            }
            "llama" => {
                let own = ["--key-value-heads", "--feed-forward-size", "--rotary-base", "--tied-head"];
                takes(&[TRANSFORMER, &own].concat())?;
                zoo_model::Options::Llama(self.llama()?)
            }
            "amoebanet_d" => {
                takes(&["--cells", "--filters", "--image-size", "--classes"])?;
                zoo_model::Options::AmoebanetD(self.amoebanet())
            }
            "transgan" => {
                takes(&["--latent-size", "--hidden-size", "--heads", "--bottom-size", "--blocks"])?;
                zoo_model::Options::Transgan(self.transgan()?)
            }
            stored => {
                let name = stored_name(stored)?;
                takes(&[])?;
                return Ok(Subject::Model(name));
            }
        };
        let zoo = v1::ZooModel { family: model.to_owned(), options: Some(options) };
        Ok(Subject::Source(v1::ModelSource { source: Some(model_source::Source::Zoo(zoo)) }))
    }

    fn vgg(&self) -> v1::VggOptions {
        v1::VggOptions {
            image_size: self.image_size.unwrap_or_default(),
            classes: self.classes.unwrap_or_default(),
            classifier_width: self.classifier_width.unwrap_or_default(),
        }
    }

    fn gpt2(&self) -> Result<v1::Gpt2Options, Failure> {
        Ok(v1::Gpt2Options {
            blocks: self.one_group()?,
            hidden_size: self.hidden_size.unwrap_or_default(),
            heads: self.heads.unwrap_or_default(),
            sequence_length: self.sequence_length.unwrap_or_default(),
            positions: self.positions.unwrap_or_default(),
            vocabulary_size: self.vocabulary_size.unwrap_or_default(),
            untied_head: self.untied_head,
            dropout: self.dropout,
        })
    }

    fn bert(&self) -> Result<v1::BertOptions, Failure> {
        Ok(v1::BertOptions {
            blocks: self.one_group()?,
            hidden_size: self.hidden_size.unwrap_or_default(),
            heads: self.heads.unwrap_or_default(),
            sequence_length: self.sequence_length.unwrap_or_default(),
            positions: self.positions.unwrap_or_default(),
            vocabulary_size: self.vocabulary_size.unwrap_or_default(),
            classes: self.classes.unwrap_or_default(),
            dropout: self.dropout,
        })
    }

    fn llama(&self) -> Result<v1::LlamaOptions, Failure> {
        Ok(v1::LlamaOptions {
            blocks: self.one_group()?,
            hidden_size: self.hidden_size.unwrap_or_default(),
            heads: self.heads.unwrap_or_default(),
            key_value_heads: self.key_value_heads.unwrap_or_default(),
            feed_forward_size: self.feed_forward_size.unwrap_or_default(),
            sequence_length: self.sequence_length.unwrap_or_default(),
            vocabulary_size: self.vocabulary_size.unwrap_or_default(),
            rotary_base: self.rotary_base,
            tied_head: self.tied_head,
        })
    }

    fn amoebanet(&self) -> v1::AmoebaNetOptions {
        v1::AmoebaNetOptions {
            cells: self.cells.unwrap_or_default(),
            filters: self.filters.unwrap_or_default(),
            image_size: self.image_size.unwrap_or_default(),
            classes: self.classes.unwrap_or_default(),
        }
    }

    fn transgan(&self) -> Result<v1::TransGanOptions, Failure> {
        if ![0, GROUPS].contains(&self.blocks.len()) {
            return Err(Failure::Usage(format!(
                "--blocks of transgan are {GROUPS} numbers, for example 5,4,2"
            )));
        }
        Ok(v1::TransGanOptions {
            latent_size: self.latent_size.unwrap_or_default(),
            hidden_size: self.hidden_size.unwrap_or_default(),
            heads: self.heads.unwrap_or_default(),
            bottom_size: self.bottom_size.unwrap_or_default(),
            blocks: self.blocks.clone(),
        })
    }

    /// The number of blocks of a model with one group of them.
    fn one_group(&self) -> Result<i32, Failure> {
        match *self.blocks.as_slice() {
            [] => Ok(0),
            [blocks] => Ok(blocks),
            _ => Err(Failure::Usage("--blocks takes one number for this model".to_owned())),
        }
    }

    /// An option that would silently change nothing is a mistake.
    fn takes(&self, what: &str, options: &[&str]) -> Result<(), Failure> {
        let given = [
            ("--image-size", self.image_size.is_some()),
            ("--classes", self.classes.is_some()),
            ("--classifier-width", self.classifier_width.is_some()),
            ("--cells", self.cells.is_some()),
            ("--filters", self.filters.is_some()),
            ("--blocks", !self.blocks.is_empty()),
            ("--hidden-size", self.hidden_size.is_some()),
            ("--heads", self.heads.is_some()),
            ("--key-value-heads", self.key_value_heads.is_some()),
            ("--feed-forward-size", self.feed_forward_size.is_some()),
            ("--sequence-length", self.sequence_length.is_some()),
            ("--positions", self.positions.is_some()),
            ("--vocabulary-size", self.vocabulary_size.is_some()),
            ("--rotary-base", self.rotary_base.is_some()),
            ("--untied-head", self.untied_head),
            ("--tied-head", self.tied_head),
            ("--dropout", self.dropout.is_some()),
            ("--latent-size", self.latent_size.is_some()),
            ("--bottom-size", self.bottom_size.is_some()),
        ];
        match given.iter().find(|(option, given)| *given && !options.contains(option)) {
            Some((option, _)) => Err(Failure::Usage(format!("{what} does not take {option}"))),
            None => Ok(()),
        }
    }
}

/// Groups of blocks of `TransGAN`'s generator.
const GROUPS: usize = 3;

/// What every transformer over tokens takes.
const TRANSFORMER: &[&str] =
    &["--blocks", "--hidden-size", "--heads", "--sequence-length", "--vocabulary-size"];

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
            "--model {text}: is no family of the zoo ({}) and no stored model (models/ID)",
            FAMILIES.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use loadmaster_proto::model::import::ModelSource;

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
        for wrong in
            [&["x"][..], &["x", "--model", "gpt2", "--model-file", "f"], &["x", "--model-format", "hf"]]
        {
            assert!(Line::try_parse_from(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn zero_is_not_the_default() {
        assert!(Line::try_parse_from(["x", "--model", "gpt2", "--blocks", "0"]).is_err());
    }
}
