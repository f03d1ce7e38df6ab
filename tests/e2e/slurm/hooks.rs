//! The hooks of deploy/slurm fill in what a plan asks for, and never stand in the way of a job.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::thread;

use loadmaster_tests::{Output, SlurmCluster, script};

use super::{plan, scene, word};

/// A job of somebody who names a plan, for a planner with this address.
fn submit(slurm: &SlurmCluster, address: &str, plan: &str, options: &[&str]) -> Output {
    submit_within(slurm, None, address, plan, options)
}

/// The same of somebody inside of a job with this number.
fn submit_within(
    slurm: &SlurmCluster,
    job: Option<&str>,
    address: &str,
    plan: &str,
    options: &[&str],
) -> Output {
    let mut command =
        slurm.command("sbatch", &[&["--parsable", "--hold"], options, &["--wrap", "true"]].concat());
    command.env("LOADMASTER_PLAN", plan).env("LOADMASTER_ADDRESS", address);
    command.envs(job.map(|job| ("SLURM_JOB_ID", job)));
    let output = Output::of(&mut command);
    assert_eq!(output.code, 0, "{}", output.stderr);
    output
}

/// A word of what Slurm keeps of a job.
fn kept(slurm: &SlurmCluster, job: &Output, key: &str) -> String {
    let told = slurm.run("scontrol", &["-o", "show", "job", job.stdout.trim()]).stdout;
    word(&told, key)
}

/// A server that does one thing to all who connect; its address.
fn server(answer: fn(TcpStream)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    thread::spawn(move || listener.incoming().flatten().for_each(answer));
    address
}

#[test]
fn jobs_get_what_their_plan_asks_for() {
    let Some((slurm, planner)) = scene("hooks") else { return };
    let id = plan(&planner, "of-2", "2d4-2d4");
    let named = format!("plans/{id}");
    let good = |plan: &str, options: &[&str]| submit(&slurm, planner.address(), plan, options);

    // By the environment or the comment; what a user wrote there stays.
    let comment = format!("--comment=loadmaster:{named}");
    for (plan, options) in
        [(named.as_str(), &["--comment=mine"] as &[&str]), (&id, &[]), ("", &[comment.as_str()])]
    {
        let job = good(plan, options);
        assert!(
            job.stderr.contains(&format!("{named} asks for --gpus-per-node=h200:2 --nodes=4 --switches=2 (")),
            "{}",
            job.stderr
        );
        assert!(job.stderr.contains(" ms)"), "{}", job.stderr);
        assert!(job.stderr.contains("this job asks for what"), "{}", job.stderr);
        assert_eq!(kept(&slurm, &job, "NumNodes="), "4");
        assert_eq!(kept(&slurm, &job, "TresPerNode="), "gres:gpu:h200:2");
        let kept = slurm.run("scontrol", &["show", "job", job.stdout.trim()]).stdout;
        assert!(kept.contains(&format!("loadmaster:{named};nodes=4;")), "{kept}");
        assert_eq!(kept.contains("mine loadmaster:"), options.contains(&"--comment=mine"), "{kept}");
    }
    // Without a plan nothing is asked and nothing said.
    let other = good("", &[]);
    assert!(!other.stderr.contains("loadmaster"), "{}", other.stderr);
    // Inside of a job the variable is of that job's plan, and a comment is what somebody asks for.
    let inherited = submit_within(&slurm, Some("1"), planner.address(), &named, &[]);
    assert!(!inherited.stderr.contains("loadmaster"), "{}", inherited.stderr);
    assert_eq!(
        (kept(&slurm, &inherited, "NumNodes="), kept(&slurm, &inherited, "TresPerNode=")),
        ("1".to_owned(), String::new())
    );
    let asked = submit_within(&slurm, Some("1"), planner.address(), "plans/other", &[&comment]);
    assert!(asked.stderr.contains(&format!("{named} asks for ")), "{}", asked.stderr);
    assert_eq!(kept(&slurm, &asked, "NumNodes="), "4");
    // What a user wants otherwise stays, with all else.
    let own = good(&named, &["--nodes=2"]);
    assert!(own.stderr.contains("--nodes=2 stays") && own.stderr.contains("asks for 4"), "{}", own.stderr);
    assert_eq!(
        (kept(&slurm, &own, "NumNodes="), kept(&slurm, &own, "TresPerNode=")),
        ("2".to_owned(), String::new())
    );
    // What is changed behind the stamp is told, and submitted.
    let stamp = format!("--comment=loadmaster:{named};nodes=4;gpus-per-node=h200:2;switches=2");
    let changed = good("", &[&stamp, "--nodes=3", "--gpus-per-node=h200:2"]);
    assert!(changed.stderr.contains("nodes is 3 and the plan has 4; switches is none"), "{}", changed.stderr);
    assert!(!changed.stderr.contains("gpus-per-node is"), "{}", changed.stderr);
}

#[test]
fn no_planner_keeps_a_job_from_being_submitted() {
    let Some((slurm, planner)) = scene("hooks") else { return };
    let id = plan(&planner, "of-2", "2d4-2d4");
    let hanging = server(|stream| {
        // It stays open until this program ends.
        thread::spawn(move || {
            thread::park();
            drop(stream);
        });
    });
    let wrong = server(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 418 I'm a teapot\r\n\r\n\0\x01\x02garbage");
    });
    let unused = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let absent = unused.local_addr().expect("it is bound").to_string();
    drop(unused);
    for (name, address) in [("absent", &absent), ("hanging", &hanging), ("wrong", &wrong)] {
        let job = submit(&slurm, address, &id, &["--nodes=3"]);
        assert!(
            job.stderr.contains("nothing is filled in, the job is submitted as it is"),
            "{name}: {}",
            job.stderr
        );
        assert!(job.stderr.contains(" ms)"), "{name}: {}", job.stderr);
        assert_eq!(kept(&slurm, &job, "NumNodes="), "3", "{name}");
        assert_eq!(kept(&slurm, &job, "Comment="), "", "{name}");
    }
    // No name of a plan becomes a command.
    let trap = slurm.folder().join("trap");
    let name = format!("plans/x; touch {}", trap.display());
    let job = submit(&slurm, planner.address(), &name, &[]);
    assert!(job.stderr.contains("names no plan") && !trap.exists(), "{}", job.stderr);

    // Clients that print what is none of their business, hang for ever, or are not there.
    let folder = slurm.folder().join("clients");
    std::fs::create_dir(&folder).expect("a folder can be made");
    let stamp = format!("#SBATCH --comment=loadmaster:plans/{id};nodes=4");
    for (body, why) in [
        (format!("echo '{stamp}'; echo '#SBATCH --nodes=4;reboot'"), "no request"),
        (format!("echo '{stamp}'; echo '#SBATCH --nodes=4'; echo '#SBATCH --uid=0'"), "no request"),
        ("echo '#SBATCH --nodes=4'".to_owned(), "no request"),
        ("head -c 100000 /dev/urandom".to_owned(), "no request"),
        ("trap '' TERM; while :; do sleep 1000; done".to_owned(), "did not answer in time"),
        ("exit 3".to_owned(), "did not answer"),
    ] {
        script(&folder, "loadmaster", &body);
        let mut command = slurm.command("sbatch", &["--parsable", "--hold", "--wrap", "true"]);
        command.env("PATH", format!("{}:/usr/bin:/bin", folder.display())).env("LOADMASTER_PLAN", &id);
        let job = Output::of(&mut command);
        assert_eq!(job.code, 0, "{body}: {}", job.stderr);
        assert!(
            job.stderr.contains("is submitted as it is") && job.stderr.contains(why),
            "{body}: {}",
            job.stderr
        );
        assert_eq!(kept(&slurm, &job, "NumNodes="), "1", "{body}");
    }
}
