//! What `--help` teaches below the options of the program itself: examples, and on the first page the exit codes.

pub(super) const ROOT: &str = "\
Start here:
  A planner with a database of its own, and in another terminal a worker with four small devices:
    loadmaster serve
    loadmaster-worker --server http://127.0.0.1:7433 --cpu-slots 4x2GiB
  In a third one: measure a model, plan it, and train the plan:
    loadmaster profile run --id first --model vgg11 --image-size 32 \\
      --micro-batch-size 8 --micro-batches 4
    plan=$(loadmaster plan recommend --profile first --devices 4x2GiB -o name)
    loadmaster plan trial \"$plan\"

Exit codes:
    0  done                                  5  it does not fit
    1  the planner or the work failed        6  profile missing or incomplete
    2  command line or a value is wrong         (PROFILE_INCOMPLETE, PROFILE_NOT_READY)
    3  not found                             7  out of time
    4  not allowed                           8  whether it fits is uncertain
                                           130  interrupted with Ctrl-C; slow work goes on

Environment:
  LOADMASTER_ADDRESS, LOADMASTER_TIMEOUT   defaults of --address and --timeout
  NO_COLOR, CLICOLOR, CLICOLOR_FORCE       colours; there are none where output is not a terminal
  LC_ALL, LC_CTYPE, LANG                   without UTF-8 in them, tables and bars are drawn in ASCII";

pub(super) const SERVE: &str = "\
Examples:
  With a private Postgres, for this machine alone:
    loadmaster serve
  With a Postgres of yours, for workers on other machines:
    DATABASE_URL=postgres://db/loadmaster loadmaster serve \\
      --listen 10.0.0.1:7433
  On a free port, for a script that reads it from a file:
    loadmaster serve --listen 127.0.0.1:0 --address-file address";

pub(super) const MIGRATE: &str = "\
Examples:
  DATABASE_URL=postgres://db/loadmaster loadmaster migrate";

pub(super) const VERSION: &str = "\
Examples:
  loadmaster version
  loadmaster version -o json";

pub(super) const MAN: &str = "\
Examples:
  loadmaster man --to ~/.local/share/man/man1
  loadmaster man --to /usr/local/share/man/man1";

pub(super) const COMPLETION: &str = "\
Examples:
  loadmaster completion bash \\
    > ~/.local/share/bash-completion/completions/loadmaster
  loadmaster completion zsh > \"${fpath[1]}/_loadmaster\"
  loadmaster completion fish > ~/.config/fish/completions/loadmaster.fish";
