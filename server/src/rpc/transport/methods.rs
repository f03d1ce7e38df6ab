//! What the methods are to those who let calls in.

use std::collections::HashMap;

use anyhow::Context;
use loadmaster_proto::wire;
use prost::Message;
use prost_types::{FileDescriptorProto, FileDescriptorSet};

use crate::rpc::calls::Texts;

/// What a call takes while it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing: whether and what the planner serves is told also when it is busy.
    Probe,
    /// A moment.
    Small,
    /// Seconds of the database, as any filter and any order may: a list that names one of them.
    Sifted,
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
    /// Numbers of a list request's fields `filter` and `order_by`; 0, which no field has, where it lacks them.
    sifting: [u32; 2],
}

impl Method {
    /// A method that is not served.
    pub(super) const UNKNOWN: Self = Self { kind: Kind::Probe, one_message: false, sifting: [0; 2] };

    /// What a call with this request takes.
    pub(super) fn kind_of(&self, request: &[u8]) -> Kind {
        let is_sifting = |(number, text): (u64, &str)| {
            !text.is_empty() && self.sifting.iter().any(|&field| u64::from(field) == number)
        };
        match self.kind {
            Kind::Small if self.sifting != [0; 2] && Texts::of(request).any(is_sifting) => Kind::Sifted,
            kind => kind,
        }
    }
}

/// All methods, by their path.
#[derive(Debug)]
pub(in crate::rpc) struct Methods(HashMap<String, Method>);

const WAIT: &str = "/google.longrunning.Operations/WaitOperation";

/// Methods that parse documents, lay out campaigns or search: half of the room at most is theirs.
const HEAVY: [&str; 16] = [
    "/loadmaster.v1.ModelService/CreateModel",
    "/loadmaster.v1.ModelService/ComputeChunkLayout",
    "/loadmaster.v1.ClusterService/CreateCluster",
    "/loadmaster.v1.ClusterService/UpdateCluster",
    "/loadmaster.v1.ClusterService/DiscoverCluster",
    "/loadmaster.v1.ProfileService/CreateProfile",
    "/loadmaster.v1.ProfileService/ResumeProfile",
    "/loadmaster.v1.ProfileService/ImportProfile",
    "/loadmaster.v1.PlanService/PredictPlan",
    "/loadmaster.v1.PlanService/RecommendPlan",
    "/loadmaster.v1.PlanService/StartRecommendation",
    "/loadmaster.v1.PlanService/SimulatePlan",
    "/loadmaster.v1.PlanService/ComparePlans",
    "/loadmaster.v1.PlanService/StartTrial",
    "/loadmaster.v1.PlanService/ListPredictionErrors",
    "/loadmaster.v1.PlanService/ListPredictionPairs",
];

/// Methods that hand out what may be megabytes: few of them at once.
const LARGE: [&str; 5] = [
    "/loadmaster.v1.ModelService/GetModel",
    "/loadmaster.v1.ClusterService/GetCluster",
    "/loadmaster.v1.ProfileService/GetProfile",
    "/loadmaster.v1.ProfileService/GetMeasurement",
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
                        let sifting = sifting(&file, method.input_type());
                        methods.insert(path, Method { kind, one_message, sifting });
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

/// The fields `filter` and `order_by` of a message of this file, whose name has its package.
fn sifting(file: &FileDescriptorProto, message: &str) -> [u32; 2] {
    let own = message.rsplit('.').next().unwrap_or_default();
    let message = file.message_type.iter().find(|of| of.name() == own);
    ["filter", "order_by"].map(|name| {
        let field = message.and_then(|message| message.field.iter().find(|field| field.name() == name));
        field.map_or(0, |field| field.number().unsigned_abs())
    })
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
    use loadmaster_proto::wire::longrunning::ListOperationsRequest;
    use loadmaster_proto::wire::v1;

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
        let connect = methods.at("/loadmaster.worker.v1.SessionService/Connect").unwrap();
        assert_eq!((connect.kind, connect.one_message), (Kind::Stream, false));
        let changes = methods.at("/loadmaster.v1.HistoryService/WatchChanges").unwrap();
        assert_eq!((changes.kind, changes.one_message), (Kind::Stream, true));
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

    /// Whatever else a request of a list has, and wherever its filter stands.
    #[test]
    fn a_list_with_a_filter_or_an_order_takes_the_database_for_a_while() {
        let methods = Methods::new().unwrap();
        let kind = |path: &str, message: &[u8]| {
            let request = [&[0; 5], message].concat();
            methods.at(path).unwrap().kind_of(&request)
        };
        let of = |filter: &str, order_by: &str| v1::ListPlansRequest {
            page_size: 7,
            page_token: "token".to_owned(),
            filter: filter.to_owned(),
            order_by: order_by.to_owned(),
            ..Default::default()
        };
        let plans = "/loadmaster.v1.PlanService/ListPlans";
        assert_eq!(kind(plans, &of("", "").encode_to_vec()), Kind::Small);
        assert_eq!(kind(plans, &of("profile = p", "").encode_to_vec()), Kind::Sifted);
        assert_eq!(kind(plans, &of("", "name").encode_to_vec()), Kind::Sifted);
        // A field in a group that no one knows, before the filter.
        let hidden = [&[15 << 3 | 3, 8, 1, 15 << 3 | 4][..], &of("a", "").encode_to_vec()].concat();
        assert_eq!(kind(plans, &hidden), Kind::Sifted);
        let operations = ListOperationsRequest { filter: "done = true".to_owned(), ..Default::default() };
        let path = "/google.longrunning.Operations/ListOperations";
        assert_eq!(kind(path, &operations.encode_to_vec()), Kind::Sifted);
        let get = v1::GetPlanRequest { name: "plans/p".to_owned(), ..Default::default() };
        assert_eq!(kind("/loadmaster.v1.PlanService/GetPlan", &get.encode_to_vec()), Kind::Small);
    }
}
