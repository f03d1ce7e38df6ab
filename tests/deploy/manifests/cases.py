"""What values of the chart change in what it makes, and which values it refuses."""

from typing import Any

from difference import NOTHING

PLANNER = "Deployment/loadmaster/spec"
WORKER = "DaemonSet/loadmaster-worker/spec/template/spec"
MIGRATION = "Job/loadmaster-migrate/spec/template/spec"
IN_PLANNER = f"{PLANNER}/template/spec/containers/planner"
IN_WORKER = f"{WORKER}/containers/worker"
IN_MIGRATION = f"{MIGRATION}/containers/migrate"
SECRET = "env/DATABASE_URL/valueFrom/secretKeyRef"
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}

# For each file in values/ everything that becomes another than by default, where it is, and what. A whole object is `...`.
CHANGED: dict[str, dict[str, Any]] = {
    "no-pages": {
        f"{IN_PLANNER}/env/LOADMASTER_WEB": {"name": "LOADMASTER_WEB", "value": "127.0.0.1:7434"},
        f"{IN_PLANNER}/ports/pages": NOTHING,
        "Service/loadmaster/spec/ports/pages": NOTHING,
    },
    "one-planner": {f"{PLANNER}/replicas": 1, "PodDisruptionBudget/loadmaster": NOTHING},
    "no-worker": {"DaemonSet/loadmaster-worker": NOTHING},
    "cpu-slots": {
        f"{IN_WORKER}/args/2": "--cpu-slots",
        f"{IN_WORKER}/args/3": "2x4GiB",
        f"{IN_WORKER}/resources/requests/cpu": 2,
        f"{IN_WORKER}/resources/requests/memory": "10Gi",
        f"{IN_WORKER}/resources/limits": {"memory": "10Gi"},
        f"{WORKER}/runtimeClassName": NOTHING,
        f"{WORKER}/nodeSelector/nvidia.com/gpu.present": NOTHING,
        f"{WORKER}/nodeSelector/loadmaster.dev/worker": "true",
        f"{WORKER}/tolerations": NOTHING,
    },
    "tolerations": {
        f"{where}/{key}": value
        for where in (f"{PLANNER}/template/spec", MIGRATION)
        for key, value in {
            "nodeSelector": {"kubernetes.io/os": "linux", "node-role.kubernetes.io/services": ""},
            "tolerations": [{"key": "services", "operator": "Equal", "value": "true", "effect": "NoSchedule"}],
        }.items()
    }
    | {f"{WORKER}/tolerations/1": {"key": "training", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}},
    "own-registry": {
        f"{where}/imagePullSecrets": [{"name": "registry"}] for where in (f"{PLANNER}/template/spec", MIGRATION, WORKER)
    }
    | {f"{where}/image": "registry.example.com/loadmaster:0.1.0-2" for where in (IN_PLANNER, IN_MIGRATION)}
    | {f"{where}/imagePullPolicy": "Always" for where in (IN_PLANNER, IN_MIGRATION, IN_WORKER)}
    | {
        f"{where}/{SECRET}/{key}": value
        for where in (IN_PLANNER, IN_MIGRATION)
        for key, value in {"name": "postgres", "key": "1"}.items()
    }
    | {
        f"{IN_WORKER}/image": "registry.example.com/loadmaster-worker:0.1.0-2",
        f"{IN_PLANNER}/args/1": "--purge-older-than",
        f"{IN_PLANNER}/args/2": "90d",
    },
}

# Values that the schema refuses, and what it says: where the mistake is, and which.
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"planer": {"replicas": 1}}, "", "'planer'"),
    ({"planner": {"replica": 1}}, "/planner", "'replica'"),
    ({"planner": {"replicas": "two"}}, "/planner/replicas", "string"),
    ({"planner": {"replicas": -1}}, "/planner/replicas", "minimum"),
    ({"planner": {"replicas": None}}, "/planner", "'replicas'"),
    ({"planner": {"pages": "no"}}, "/planner/pages", "string"),
    ({"planner": {"image": {"pullPolicy": "Sometimes"}}}, "/planner/image/pullPolicy", "'IfNotPresent'"),
    ({"planner": {"image": {"repository": ""}}}, "/planner/image/repository", "minLength"),
    ({"planner": {"image": {"tag": 1.0}}}, "/planner/image/tag", "number"),
    ({"planner": None}, "", "'planner'"),
    ({"worker": {"arguments": "--cpu-slots 2x4GiB"}}, "/worker/arguments", "string"),
    ({"worker": {"tolerations": [{"effect": "NoSchedul"}]}}, "/worker/tolerations/0/effect", "'NoSchedule'"),
    ({"worker": {"tolerations": [{"keys": "gpu"}]}}, "/worker/tolerations/0", "'keys'"),
    ({"worker": {"resources": {"limit": {}}}}, "/worker/resources", "'limit'"),
    ({"worker": {"resources": {"limits": {"memory": []}}}}, "/worker/resources/limits/memory", "array"),
    ({"worker": {"nodeSelector": {"gpu": True}}}, "/worker/nodeSelector/gpu", "boolean"),
    ({"imagePullSecrets": ["registry"]}, "/imagePullSecrets/0", "string"),
    ({"database": {"existingSecret": ""}}, "/database/existingSecret", "minLength"),
    ({"database": {"url": "postgres://db/loadmaster"}}, "/database", "'url'"),
]

# Names of releases that cannot be, and that look like other things than words.
BAD_RELEASES = ["1st", "12", "1e3", "team.a"]
ODD_RELEASES = ["null", "true", "on", "y", "a" * 53, "team-a", "my-loadmaster"]
