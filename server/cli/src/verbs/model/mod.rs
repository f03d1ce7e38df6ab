//! `loadmaster model`, and the options that name a model to profile.

mod chunks;
mod layers;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::create_profile_request::Subject;

use super::help;
use crate::failure::{Failure, options};
use crate::input::model::ModelArgs;
use crate::input::model::source::{self, ModelFormat};
use crate::input::parse;
use crate::output::{Format, write_stdout};
use crate::session::context::Context;
use crate::session::list::{ListArgs, ListOptions};
use crate::session::watch;
use chunks::ComputeChunkLayout;

#[derive(Debug, Subcommand)]
pub(crate) enum ModelVerb {
    /// List stored models, newest first.
    #[command(after_help = help::MODEL_LIST)]
    List(ListArgs),
    /// Show a model with its layers.
    #[command(visible_alias = "get", after_help = help::MODEL_SHOW)]
    Show {
        /// The model: `models/ID` or the id alone.
        #[arg(value_parser = parse::model)]
        name: String,
    },
    /// Store a model of a built-in family: gpt2, llama, bert, vgg11 and others. Equal models get equal names.
    #[command(after_help = help::MODEL_CREATE, allow_negative_numbers = true)]
    Create(Box<CreateModel>),
    /// Store a model from a file: a Hugging Face config.json, or a list of layers in JSON or YAML.
    #[command(after_help = help::MODEL_IMPORT)]
    Import(ImportModel),
    /// Delete a model that no profile, plan or run references.
    #[command(after_help = help::MODEL_DELETE)]
    Delete {
        /// The model: `models/ID` or the id alone.
        #[arg(value_parser = parse::model)]
        name: String,
    },
    /// Compute the chunk layout of a model: the best chunk size, its unused share, and bytes with and without sharding.
    #[command(after_help = help::MODEL_CHUNKS, allow_negative_numbers = true)]
    Chunks(Box<ComputeChunkLayout>),
}

/// See [`ModelVerb::Create`].
#[derive(Debug, Args)]
pub(crate) struct CreateModel {
    #[command(flatten)]
    model: ModelArgs,

    /// Check and show the model without storing it.
    #[arg(long)]
    dry_run: bool,
}

/// See [`ModelVerb::Import`].
#[derive(Debug, Args)]
pub(crate) struct ImportModel {
    /// The file, or `-` for standard input.
    #[arg(value_name = "PATH")]
    file: PathBuf,

    /// Format of the file [default: hf if it has a `model_type`, else layers].
    #[arg(long, value_enum)]
    format: Option<ModelFormat>,

    /// hf: tokens per sample [default: the longest of the configuration, at most 4096].
    #[arg(long, value_name = "N", value_parser = parse::positive())]
    sequence_length: Option<i32>,

    /// hf: ignore keys with an unknown meaning; notes list them [default: they are an error].
    #[arg(long)]
    ignore_unknown_keys: bool,

    /// Check and show the model without storing it.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(context: &Context, verb: ModelVerb) -> Result<(), Failure> {
    match verb {
        ModelVerb::List(list) => {
            let ListOptions { filter, order_by, shown } = list.asked()?;
            let request = v1::ListModelsRequest { filter, order_by, ..Default::default() };
            watch::print(context, shown, request).await
        }
        ModelVerb::Show { name } => {
            let request = v1::GetModelRequest { name, ..Default::default() };
            let model = context.client.call(request).await?;
            print(context, model, true)
        }
        ModelVerb::Delete { name } => {
            context.delete(v1::DeleteModelRequest { name: name.clone() }, &name).await
        }
        ModelVerb::Create(create) => match create.model.subject()? {
            Subject::Source(source) => store(context, source, create.dry_run).await,
            Subject::Model(name) => Failure::usage(format!(
                "--model {name}: this is the name of a stored model. To create a model, give a model family, for example --model \
                 gpt2."
            )),
        },
        ModelVerb::Import(ImportModel { file, format, sequence_length, ignore_unknown_keys, dry_run }) => {
            let source = source::read(&file, format, sequence_length, ignore_unknown_keys)?;
            store(context, source, dry_run).await
        }
        ModelVerb::Chunks(chunks) => {
            let request = chunks.request()?;
            context.output.print(&context.client.call(request).await?)
        }
    }
}

async fn store(context: &Context, source: v1::ModelSource, validate_only: bool) -> Result<(), Failure> {
    let request = v1::CreateModelRequest { source: Some(source), validate_only };
    let model = context.client.call(request).await?;
    if validate_only {
        context.remark("dry run: the model is not stored");
    }
    print(context, model, !validate_only)
}

/// As the format asks, or as the list of layers that it can be imported from.
fn print(context: &Context, model: v1::Model, is_stored: bool) -> Result<(), Failure> {
    for note in model.notes.iter().filter(|_| context.output.format != Format::Table) {
        context.remark(note);
    }
    if context.lists_layers {
        return write_stdout(layers::list(model)?.as_bytes());
    }
    context.print(&model, is_stored)
}

impl ModelVerb {
    /// The options that fill the fields of its request.
    pub(crate) fn options(&self) -> options::OptionTable {
        match self {
            Self::List(_) => options::LIST,
            Self::Show { .. } | Self::Delete { .. } => options::NAME,
            Self::Create(_) => options::MODEL_CREATE,
            Self::Import(_) => options::MODEL_IMPORT,
            Self::Chunks(_) => options::MODEL_CHUNKS,
        }
    }

    /// Returns the file that its request carries.
    pub(crate) fn document(&self) -> Option<&Path> {
        match self {
            Self::Import(import) => Some(&import.file),
            _ => None,
        }
    }

    /// Whether its answer is one model with its layers.
    pub(crate) fn shows_a_model(&self) -> bool {
        !matches!(self, Self::List(_) | Self::Chunks(_) | Self::Delete { .. })
    }
}
