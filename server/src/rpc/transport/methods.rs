//! What the methods are to those who let calls in.

use std::collections::HashMap;

use anyhow::Context;
use loadmaster_proto::wire;
use prost::Message;
use prost_types::FileDescriptorSet;

/// What a call takes while it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing: whether and what the planner serves is told also when it is busy.
    Probe,
    /// A moment.
    Small,
    /// A core, for a while.
    Heavy,
    /// Bytes: a stored content of any size is read, and handed out whole.
    Large,
    /// Time: it has a limit of its own, and must not keep others out.
    Wait,
    /// A stream that its caller keeps open: its service says what it may take.
    Stream,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Method {
    pub(super) kind: Kind,
    /// The request is a single message.
    pub(super) one_message: bool,
}

/// All methods, by their path.
#[derive(Debug)]
pub(in crate::rpc) struct Methods(HashMap<String, Method>);

const WAIT: &str = "/google.longrunning.Operations/WaitOperation";

/// Methods that parse documents, lay out campaigns or search: half of the room at most is theirs.
const HEAVY: [&str; 14] = [
    "/loadmaster.v1.ModelService/CreateModel",
    "/loadmaster.v1.ModelService/LayOutModel",
    "/loadmaster.v1.ClusterService/CreateCluster",
    "/loadmaster.v1.ClusterService/DiscoverCluster",
    "/loadmaster.v1.ProfileService/RunProfile",
    "/loadmaster.v1.ProfileService/ResumeProfile",
    "/loadmaster.v1.ProfileService/ImportProfile",
    "/loadmaster.v1.PlanService/PredictMemory",
    "/loadmaster.v1.PlanService/RecommendPlan",
    "/loadmaster.v1.PlanService/SimulatePlan",
    "/loadmaster.v1.PlanService/ComparePlans",
    "/loadmaster.v1.PlanService/ValidatePlan",
    "/loadmaster.v1.PlanService/ListPredictionErrors",
    "/loadmaster.v1.HistoryService/PruneHistory",
];

/// Methods that hand out what may be megabytes: few of them at once.
const LARGE: [&str; 4] = [
    "/loadmaster.v1.ModelService/GetModel",
    "/loadmaster.v1.ClusterService/GetCluster",
    "/loadmaster.v1.ProfileService/GetProfile",
    "/loadmaster.v1.ProfileService/ExportProfile",
];

impl Methods {
    /// Every method that this program can serve.
    ///
    /// # Errors
    /// When a descriptor that was built in cannot be read: a defect.
    pub(in crate::rpc) fn new() -> anyhow::Result<Self> {
        let mut methods = HashMap::new();
        for descriptors in [
            wire::DESCRIPTORS,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
        ] {
            let files = FileDescriptorSet::decode(descriptors).context("a descriptor cannot be read")?;
            for file in files.file {
                for service in &file.service {
                    for method in &service.method {
                        let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                        let one_message = !method.client_streaming();
                        let kind = kind(&path, one_message && !method.server_streaming());
                        methods.insert(path, Method { kind, one_message });
                    }
                }
            }
        }
        Ok(Self(methods))
    }

    /// The method at a path; none where there is no such method, which takes nothing.
    pub(super) fn at(&self, path: &str) -> Option<Method> {
        self.0.get(path).copied()
    }
}

fn kind(path: &str, unary: bool) -> Kind {
    if path.starts_with("/grpc.") {
        Kind::Probe
    } else if !unary {
        Kind::Stream
    } else if path == WAIT {
        Kind::Wait
    } else if HEAVY.contains(&path) {
        Kind::Heavy
    } else if LARGE.contains(&path) {
        Kind::Large
    } else {
        Kind::Small
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A method that is renamed must not lose its place.
    #[test]
    fn every_method_that_is_named_here_exists() {
        let methods = Methods::new().unwrap();
        for path in HEAVY {
            assert_eq!(methods.at(path).map(|method| method.kind), Some(Kind::Heavy), "{path}");
        }
        for path in LARGE {
            assert_eq!(methods.at(path).map(|method| method.kind), Some(Kind::Large), "{path}");
        }
        assert_eq!(methods.at(WAIT).map(|method| method.kind), Some(Kind::Wait));
        let connect = methods.at("/loadmaster.v1.WorkerService/Connect").unwrap();
        assert_eq!((connect.kind, connect.one_message), (Kind::Stream, false));
        for probe in [
            "/grpc.health.v1.Health/Check",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        ] {
            assert_eq!(methods.at(probe).map(|method| method.kind), Some(Kind::Probe), "{probe}");
        }
        assert_eq!(
            methods.at("/loadmaster.v1.PlanService/GetPlan").map(|method| method.kind),
            Some(Kind::Small)
        );
        assert!(methods.at("/loadmaster.v1.PlanService/Nothing").is_none());
    }
}
