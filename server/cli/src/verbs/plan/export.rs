//! `loadmaster plan export`: a plan as the files and flags of a launcher.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use loadmaster_proto::wire::v1;

use crate::failure::Failure;
use crate::input::choice::choice;
use crate::input::parse;
use crate::session::client::plans;
use crate::session::context::Context;

/// See [`super::PlanVerb::Export`].
#[derive(Debug, Args)]
pub(crate) struct ExportPlan {
    /// The plan: `plans/ID` or the id alone.
    #[arg(value_parser = parse::plan, required_unless_present = "list")]
    name: Option<String>,

    /// The launcher, with its version behind an @ [default: the plan's, newest version].
    #[arg(long, value_name = "LAUNCHER[@VERSION]", value_parser = parse::launcher)]
    launcher: Option<(v1::Launcher, String)>,

    /// Which of the launcher's ways to say a plan, where it has several (--list shows them) [default: the usual one].
    #[arg(long, value_parser = choice::<v1::ExportVariant>())]
    variant: Option<v1::ExportVariant>,

    /// On the devices of this binding, `bindings/ID` or the id alone, which `plan bind` made. Default: those planned with.
    #[arg(long, value_name = "NAME", value_parser = parse::binding)]
    binding: Option<String>,

    /// Write its files into this folder, which is made; else they are printed.
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,

    /// Replace files of the folder that are others.
    #[arg(long, requires = "to")]
    overwrite: bool,

    /// List the launchers and versions that plans are exported to.
    #[arg(long, conflicts_with_all = ["name", "launcher", "variant", "binding", "to"])]
    list: bool,
}

impl ExportPlan {
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Some(name) = self.name.filter(|_| !self.list) else {
            let request = v1::ListExportersRequest {};
            let answer = context
                .client
                .call(request, async |channel, q| plans(channel).list_exporters(q).await)
                .await?;
            return context.output.print(&answer);
        };
        let (launcher, launcher_version) = self.launcher.unwrap_or_default();
        let variant = self.variant.unwrap_or_default().into();
        let binding = self.binding.unwrap_or_default();
        let request =
            v1::ExportPlanRequest { name, launcher: launcher.into(), launcher_version, variant, binding };
        let export =
            context.client.call(request, async |channel, q| plans(channel).export_plan(q).await).await?;
        if let Some(folder) = &self.to {
            write(folder, &export.files, self.overwrite)?;
            let count = export.files.len();
            context.remark(&format!(
                "{} written to {}",
                crate::text::plural(count, "file"),
                folder.display()
            ));
            // What is in the folder need not be on the terminal, too.
            let told = v1::ExportPlanResponse { files: Vec::new(), ..export };
            return context.output.print(&told);
        }
        context.output.print(&export)
    }
}

/// Writes files into a folder, all of them or none where one of another content is there.
fn write(folder: &Path, files: &[v1::ExportedFile], overwrite: bool) -> Result<(), Failure> {
    let mut paths = Vec::with_capacity(files.len());
    for file in files {
        // A planner names files, and must not reach out of the folder with them.
        if Path::new(&file.name).file_name() != Some(std::ffi::OsStr::new(&file.name)) {
            return Err(anyhow::anyhow!(
                "the planner named a file {:?}, which is no name of a file",
                file.name
            )
            .into());
        }
        let path = folder.join(&file.name);
        let there = std::fs::read(&path).ok();
        if !overwrite && there.is_some_and(|there| there != file.contents.as_bytes()) {
            let why = format!(
                "{} is there with another content: name another folder, or --overwrite",
                path.display()
            );
            return Err(anyhow::anyhow!(why).into());
        }
        paths.push(path);
    }
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    for (path, file) in paths.iter().zip(files) {
        std::fs::write(path, &file.contents).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
