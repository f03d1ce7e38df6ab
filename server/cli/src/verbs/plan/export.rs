//! `loadmaster plan export`: a plan as the files and flags of a framework.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use loadmaster_proto::wire::v1;
use loadmaster_show::choice::{MANIFESTS, VARIANTS};
use loadmaster_show::table::fit_under;

use crate::failure::{Failure, check_fits, options};
use crate::input::parse;
use crate::input::parse::{Id, NamedFramework};
use crate::session::context::Context;
use crate::session::page::{self, Limit};
use crate::session::{address, export};

/// See [`super::PlanVerb::Export`].
#[derive(Debug, Args)]
pub(crate) struct ExportPlan {
    /// The plan: `plans/ID` or the id alone.
    #[arg(value_parser = parse::plan, required_unless_present = "list")]
    name: Option<String>,

    /// The framework, and its version after an @ [default: the plan's, newest version].
    #[arg(long, value_name = "FRAMEWORK[@VERSION]", value_parser = parse::framework)]
    framework: Option<NamedFramework>,

    /// Variant of the export, for frameworks with several; --list shows them [default: usual].
    #[arg(long, value_parser = Id(VARIANTS))]
    variant: Option<String>,

    /// Placement whose devices the ranks get: `placements/ID` or the id alone, as `plan place` prints it. Of the manifests for
    /// Kubernetes, jobset takes one, with a job per node. Default: the plan's devices.
    #[arg(long, value_name = "NAME", value_parser = parse::placement)]
    placement: Option<String>,

    /// Manifest that starts the processes; --list shows those of each framework [default: torchrun].
    #[arg(long, value_parser = Id(MANIFESTS))]
    manifest: Option<String>,

    #[command(flatten)]
    options: ManifestOptions,

    /// Folder for the files; it is created [default: they are printed].
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,

    /// Replace files of the folder that differ. A link is replaced; its target stays.
    #[arg(long, requires = "to")]
    overwrite: bool,

    /// List the frameworks and versions that have an export.
    #[arg(long, conflicts_with_all = ["name", "framework", "variant", "placement", "manifest", "to"])]
    list: bool,

    /// Only frameworks of --list that match: 'manifests:jobset AND verified = trained'. An unknown field is an error that
    /// lists the valid ones.
    #[arg(long, value_name = "FILTER", requires = "list", allow_hyphen_values = true)]
    filter: Option<String>,

    /// Fields to order --list by, each with asc or desc after it.
    #[arg(long, value_name = "FIELD,…", requires = "list")]
    order_by: Option<String>,
}

/// Settings of manifests for Kubernetes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Manifests for Kubernetes")]
struct ManifestOptions {
    /// Container image of the pods, with the framework, and the program in its working folder.
    #[arg(long, value_name = "IMAGE", requires = "manifest")]
    image: Option<String>,

    /// Namespace of all objects.
    #[arg(long, value_name = "NAMESPACE", requires = "manifest")]
    namespace: Option<String>,

    /// Name of the objects [default: plan-ID].
    #[arg(long, value_name = "NAME", requires = "manifest")]
    job_name: Option<String>,

    /// Kueue queue that admits the objects.
    #[arg(long, value_name = "QUEUE", requires = "manifest")]
    queue: Option<String>,

    /// All pods must be within one domain of this level: a node label of Kueue's topology. This option and the two below exclude
    /// --placement, which names the nodes.
    #[arg(long, value_name = "LEVEL", requires = "manifest", conflicts_with = "preferred_topology")]
    required_topology: Option<String>,

    /// All pods are within one domain of this level if possible, else in few domains.
    #[arg(long, value_name = "LEVEL", requires = "manifest")]
    preferred_topology: Option<String>,

    /// The pods of each stage must be within one domain of this level.
    #[arg(long, value_name = "LEVEL", requires = "manifest")]
    stage_topology: Option<String>,
}

impl From<ManifestOptions> for v1::ManifestOptions {
    fn from(options: ManifestOptions) -> Self {
        Self {
            image: options.image.unwrap_or_default(),
            namespace: options.namespace.unwrap_or_default(),
            name: options.job_name.unwrap_or_default(),
            queue: options.queue.unwrap_or_default(),
            required_topology: options.required_topology.unwrap_or_default(),
            preferred_topology: options.preferred_topology.unwrap_or_default(),
            stage_topology: options.stage_topology.unwrap_or_default(),
        }
    }
}

impl ExportPlan {
    /// The options that fill the fields of its request.
    pub(super) fn options(&self) -> options::OptionTable {
        if self.list { options::PLAN_EXPORTERS } else { options::PLAN_EXPORT }
    }

    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Some(name) = self.name.filter(|_| !self.list) else {
            let request = v1::ListFrameworksRequest {
                filter: self.filter.unwrap_or_default(),
                order_by: self.order_by.unwrap_or_default(),
                ..Default::default()
            };
            let answer = page::all(context, Limit::NONE, &request).await?;
            return context.output.print(&answer);
        };
        if self.filter.is_some() || self.order_by.is_some() {
            return Failure::usage(
                "--filter and --order-by apply only to the list of frameworks. Add --list, or leave both options out.",
            );
        }
        let framework = self.framework.unwrap_or_default();
        let request = v1::ExportPlanRequest {
            name,
            framework: framework.id,
            framework_version: framework.version,
            variant: self.variant.unwrap_or_default(),
            placement: self.placement.unwrap_or_default(),
            manifest: self.manifest.unwrap_or_default(),
            manifest_options: Some(self.options.into()),
        };
        let asked = request.clone();
        let export = export::export(context, request).await?;
        let page = page(&asked, &export.framework);
        let verdict = export.verdict();
        let why = format!("{} {}", export.plan, fit_under(verdict, &export.framework));
        if let Some(folder) = &self.to {
            write(folder, &export.files, self.overwrite)?;
            let count = export.files.len();
            context.remark(&format!(
                "{} written to {}",
                loadmaster_show::text::plural(count, "file"),
                folder.display()
            ));
            // What is in the folder need not be on the terminal, too.
            let told = v1::ExportPlanResponse { files: Vec::new(), ..export };
            context.output.print(&told)?;
        } else {
            context.output.print(&export)?;
        }
        context.link(&page);
        // It is written all the same: what a framework adds is counted at most.
        check_fits(verdict, || why)
    }
}

/// The path of the page that shows the same export.
fn page(asked: &v1::ExportPlanRequest, framework: &str) -> String {
    let options = asked.manifest_options.clone().unwrap_or_default();
    address::of_form(
        &format!("{}/export/{}", asked.name, framework),
        &[
            ("version", &asked.framework_version),
            ("variant", &asked.variant),
            ("placement", &asked.placement),
            ("manifest", &asked.manifest),
            ("image", &options.image),
            ("namespace", &options.namespace),
            ("name", &options.name),
            ("queue", &options.queue),
            ("required_topology", &options.required_topology),
            ("preferred_topology", &options.preferred_topology),
            ("stage_topology", &options.stage_topology),
        ],
    )
}

/// Writes files into a folder, all of them or none where one of another content is there. Links of the folder are not followed.
fn write(folder: &Path, files: &[v1::ExportedFile], overwrite: bool) -> Result<(), Failure> {
    let mut changed = Vec::with_capacity(files.len());
    for file in files {
        let path = folder.join(&file.name);
        let there = std::fs::symlink_metadata(&path).ok();
        let contents = there.as_ref().filter(|there| there.is_file()).and_then(|_| std::fs::read(&path).ok());
        // What is equal stays: others may read it meanwhile, since jobs of one plan share the folder.
        if contents.as_deref() == Some(file.contents.as_bytes()) {
            continue;
        }
        if !overwrite && there.is_some() {
            let why = format!(
                "{} exists with other content. Name another folder with --to, or add --overwrite.",
                path.display()
            );
            return Err(anyhow::anyhow!(why).into());
        }
        changed.push((path, &file.contents));
    }
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    for (path, contents) in &changed {
        written(folder, path, contents).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Puts a file in its place when it is whole. A new file takes the name, so a link of that name is replaced.
fn written(folder: &Path, path: &Path, contents: &str) -> std::io::Result<()> {
    // With what was allowed of the file of that name, else less what the user's mask takes, as of any new file.
    let there = path.symlink_metadata().ok().filter(std::fs::Metadata::is_file);
    let mode = there.map_or_else(|| Permissions::from_mode(0o666), |of| of.permissions());
    let mut file = tempfile::Builder::new().prefix(".export").permissions(mode).tempfile_in(folder)?;
    file.write_all(contents.as_bytes())?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn an_export_has_the_address_of_its_form() {
        let mut asked = v1::ExportPlanRequest { name: "plans/a1".to_owned(), ..Default::default() };
        assert_eq!(page(&asked, "megatron"), "plans/a1/export/megatron");
        asked.framework_version = "0.19".to_owned();
        asked.placement = "placements/b2".to_owned();
        asked.variant = "hybrid".to_owned();
        asked.manifest = "job".to_owned();
        asked.manifest_options =
            Some(v1::ManifestOptions { image: "train:1".to_owned(), ..Default::default() });
        assert_eq!(
            page(&asked, "megatron"),
            "plans/a1/export/megatron?version=0.19&variant=hybrid&placement=placements%2Fb2&manifest=job&image=train%3A1"
        );
    }

    /// Jobs of one plan share a folder: what is equal stays the file that others have open, what is not is replaced as a whole.
    #[test]
    fn equal_files_stay_and_others_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = |contents: &str| v1::ExportedFile {
            name: "train.sh".to_owned(),
            contents: contents.to_owned(),
            ..v1::ExportedFile::default()
        };
        let path = folder.path().join("train.sh");
        let inode = || std::fs::metadata(&path).unwrap().ino();
        write(folder.path(), &[file("one")], false).unwrap();
        let first = inode();
        write(folder.path(), &[file("one")], true).unwrap();
        assert_eq!(inode(), first);
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let mut reader = std::fs::File::open(&path).unwrap();
        write(folder.path(), &[file("another")], true).unwrap();
        let mut read = String::new();
        std::io::Read::read_to_string(&mut reader, &mut read).unwrap();
        assert_eq!((read.as_str(), std::fs::read_to_string(&path).unwrap().as_str()), ("one", "another"));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o111, 0o111, "it may be started");
        assert!(write(folder.path(), &[file("third")], false).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
    }

    /// Whoever may write to the folder, or made it, leads no file of the user's elsewhere.
    #[test]
    fn links_of_the_folder_are_replaced_and_never_followed() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = v1::ExportedFile {
            name: "train.sh".to_owned(),
            contents: "exported".to_owned(),
            ..v1::ExportedFile::default()
        };
        let (path, precious) = (folder.path().join("train.sh"), outside.path().join("precious"));
        for contents in [Some("precious"), Some("exported"), None] {
            let _ = std::fs::remove_file(&path);
            let _ = std::fs::remove_file(&precious);
            if let Some(contents) = contents {
                std::fs::write(&precious, contents).unwrap();
            }
            std::os::unix::fs::symlink(&precious, &path).unwrap();
            assert!(write(folder.path(), std::slice::from_ref(&file), false).is_err(), "{contents:?}");
            assert!(path.symlink_metadata().unwrap().is_symlink());
            write(folder.path(), std::slice::from_ref(&file), true).unwrap();
            assert!(path.symlink_metadata().unwrap().is_file(), "{contents:?}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "exported");
            assert_eq!(std::fs::read_to_string(&precious).ok().as_deref(), contents);
        }
    }
}
