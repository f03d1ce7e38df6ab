//! The hyper-parameters of the zoo's families.

use clap::Args;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::zoo_model::Options;

use crate::failure::Failure;
use crate::input::parse::positive;

/// Groups of blocks of `TransGAN`'s generator.
const GROUPS: usize = 3;

/// The options of all families.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
#[expect(clippy::doc_markdown, reason = "these texts are the help of the options, printed as they are")]
pub(super) struct ZooOptions {
    /// vgg11, amoebanet_d: height and width of the input [default: 224].
    #[arg(long, value_name = "PIXELS", value_parser = positive())]
    image_size: Option<i32>,
    /// vgg11, amoebanet_d, bert: number of classes [default: 1000; bert: 2].
    #[arg(long, value_name = "N", value_parser = positive())]
    classes: Option<i32>,
    /// vgg11: width of the two hidden layers of the classifier [default: 4096].
    #[arg(long, value_name = "N", value_parser = positive())]
    classifier_width: Option<i32>,

    /// amoebanet_d: number of normal cells (L), a multiple of 3 [default: 18].
    #[arg(long, value_name = "N", value_parser = positive())]
    cells: Option<i32>,
    /// amoebanet_d: number of filters (F), a multiple of 8 [default: 208].
    #[arg(long, value_name = "N", value_parser = positive())]
    filters: Option<i32>,

    /// gpt2, bert, llama: number of transformer blocks [default: 12; llama: 32]. transgan: those of its three
    /// groups [default: 5,4,2].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = positive())]
    blocks: Vec<i32>,
    /// gpt2, bert, llama, transgan: hidden size, a multiple of --heads [default: 768; llama: 4096;
    /// transgan: 1024].
    #[arg(long, value_name = "N", value_parser = positive())]
    hidden_size: Option<i32>,
    /// gpt2, bert, llama, transgan: number of attention heads [default: gpt2: 12; bert: hidden size / 64; llama:
    /// hidden size / 128; transgan: 4].
    #[arg(long, value_name = "N", value_parser = positive())]
    heads: Option<i32>,
    /// llama: number of key-value heads (GQA), a divisor of --heads [default: --heads].
    #[arg(long, value_name = "N", value_parser = positive())]
    key_value_heads: Option<i32>,
    /// llama: width of the MLP [default: 8/3 of the hidden size, rounded up to 256].
    #[arg(long, value_name = "N", value_parser = positive())]
    feed_forward_size: Option<i32>,
    /// gpt2, bert, llama, --model-file with hf: tokens per sample [default: 1024; bert: 512; llama: 4096;
    /// hf: the longest of the configuration, at most 4096].
    #[arg(long, value_name = "N", value_parser = positive())]
    pub(super) sequence_length: Option<i32>,
    /// gpt2, bert: number of learned position embeddings [default: 1024; bert: 512; at least the sequence
    /// length].
    #[arg(long, value_name = "N", value_parser = positive())]
    positions: Option<i32>,
    /// gpt2, bert, llama: size of the vocabulary [default: 50257; bert: 30522; llama: 32000].
    #[arg(long, value_name = "N", value_parser = positive())]
    vocabulary_size: Option<i32>,
    /// llama: base of the rotary position embedding [default: 10000].
    #[arg(long, value_name = "NUMBER")]
    rotary_base: Option<f64>,
    /// gpt2: do not share the embedding's weight with the output layer.
    #[arg(long)]
    untied_head: bool,
    /// llama: share the embedding's weight with the output layer.
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

impl ZooOptions {
    /// Takes out what a family has, as its message; none where it is no family.
    pub(super) fn take_of(&mut self, family: &str) -> Option<Result<Options, Failure>> {
        Some(match family {
            "vgg11" => Ok(Options::Vgg(v1::VggOptions {
                image_size: number(&mut self.image_size),
                classes: number(&mut self.classes),
                classifier_width: number(&mut self.classifier_width),
            })),
            "gpt2" => {
                let blocks = self.one_group();
                let options = v1::Gpt2Options {
                    blocks: 0,
                    hidden_size: number(&mut self.hidden_size),
                    heads: number(&mut self.heads),
                    sequence_length: number(&mut self.sequence_length),
                    positions: number(&mut self.positions),
                    vocabulary_size: number(&mut self.vocabulary_size),
                    untied_head: std::mem::take(&mut self.untied_head),
                    dropout: self.dropout.take(),
                };
                blocks.map(|blocks| Options::Gpt2(v1::Gpt2Options { blocks, ..options }))
            }
            "bert" => {
                let blocks = self.one_group();
                let options = v1::BertOptions {
                    blocks: 0,
                    hidden_size: number(&mut self.hidden_size),
                    heads: number(&mut self.heads),
                    sequence_length: number(&mut self.sequence_length),
                    positions: number(&mut self.positions),
                    vocabulary_size: number(&mut self.vocabulary_size),
                    classes: number(&mut self.classes),
                    dropout: self.dropout.take(),
                };
                blocks.map(|blocks| Options::Bert(v1::BertOptions { blocks, ..options }))
            }
            "llama" => {
                let blocks = self.one_group();
                let options = v1::LlamaOptions {
                    blocks: 0,
                    hidden_size: number(&mut self.hidden_size),
                    heads: number(&mut self.heads),
                    key_value_heads: number(&mut self.key_value_heads),
                    feed_forward_size: number(&mut self.feed_forward_size),
                    sequence_length: number(&mut self.sequence_length),
                    vocabulary_size: number(&mut self.vocabulary_size),
                    rotary_base: self.rotary_base.take(),
                    tied_head: std::mem::take(&mut self.tied_head),
                };
                blocks.map(|blocks| Options::Llama(v1::LlamaOptions { blocks, ..options }))
            }
            "amoebanet_d" => Ok(Options::AmoebanetD(v1::AmoebaNetOptions {
                cells: number(&mut self.cells),
                filters: number(&mut self.filters),
                image_size: number(&mut self.image_size),
                classes: number(&mut self.classes),
            })),
            "transgan" => {
                let blocks = self.three_groups();
                let options = v1::TransGanOptions {
                    latent_size: number(&mut self.latent_size),
                    hidden_size: number(&mut self.hidden_size),
                    heads: number(&mut self.heads),
                    bottom_size: number(&mut self.bottom_size),
                    blocks: Vec::new(),
                };
                blocks.map(|blocks| Options::Transgan(v1::TransGanOptions { blocks, ..options }))
            }
            _ => return None,
        })
    }

    /// The number of blocks of a model with one group of them.
    fn one_group(&mut self) -> Result<i32, Failure> {
        match *std::mem::take(&mut self.blocks).as_slice() {
            [] => Ok(0),
            [blocks] => Ok(blocks),
            _ => Failure::usage("--blocks: more than one number. Use one."),
        }
    }

    fn three_groups(&mut self) -> Result<Vec<i32>, Failure> {
        let blocks = std::mem::take(&mut self.blocks);
        if ![0, GROUPS].contains(&blocks.len()) {
            return Failure::usage(format!(
                "--blocks: transgan has {GROUPS} groups of blocks. Set the number of blocks of each group, for example \
                 5,4,2."
            ));
        }
        Ok(blocks)
    }

    /// An option that would silently change nothing is a mistake.
    pub(super) fn all_are_taken(&self, what: &str) -> Result<(), Failure> {
        let left = [
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
        match left.iter().find(|(_, is_left)| *is_left) {
            Some((option, _)) => Failure::usage(format!("{option} is not valid with {what}")),
            None => Ok(()),
        }
    }
}

/// On the wire 0 is the default.
fn number(option: &mut Option<i32>) -> i32 {
    option.take().unwrap_or_default()
}
