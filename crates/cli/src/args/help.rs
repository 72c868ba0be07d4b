//! The longer texts of `--help`: examples first, and what does not belong to one flag.

pub(super) const EXAMPLES: &str = "\
Examples:
  rota run -- python train.py        run a program; start as many as you like
  rota run --name nightly --memory 8GiB --weight 3 -- ./sim
                                     the same, with a name and terms of its own
  rota ps                            see who has the GPU and who waits
  rota ps -o json                    the same, for scripts
  rota set nightly --weight 1        change the terms while it runs
  rota describe nightly              see all about it
  rota doctor                        see whether this machine is fit for it
  rota demo                          watch programs take turns, without a GPU
  rotad --vgpu DIR &                 start the daemon on a virtual GPU
  rota run --vgpu -- ./worker        run a program there
  rota sim compare seed-4x12         see what turns are worth, without a GPU";

pub(super) const RUN_EXAMPLES: &str = "\
Examples:
  rota run -- python train.py --epochs 3
  rota run --name nightly --memory 8GiB --weight 3 -- ./simulate input.dat
  rota run --cores 30% --priority low -- python sweep.py
  rota run --gpus 2 --gang -- torchrun --nproc-per-node 2 train.py
  rota run -q -- sh -c 'prepare && train'
  rota run --vgpu -- ./worker --steps 20";

pub(super) const RUN_AFTER: &str = "\
The program replaces rota: terminal, signals and exit code are its own.

Exit codes:
  2    wrong usage
  125  rota failed: no daemon, no shim, terms that are refused, another kind of
       GPU than asked for, a wait that was longer than --timeout
  126  the program cannot be executed
  127  the program was not found
  else the program's own

Environment, read by rota:
  ROTA_SHIM             the shim's file; else librota_shim.so beside rota or in
                        ../lib/rota
  ROTA_LIBVGPU          with --vgpu, the virtual GPU's library; else libvgpu.so
                        in the same places

Environment, set for the program:
  LD_PRELOAD            the shim, and what stands in front of NVML, before what
                        was there
  ROTA_SOCKET           the daemon's socket
  ROTA_JOB              the job's name
  ROTA_REQUIRED=1       without the daemon the program gets an error from CUDA,
                        and does not run past everybody
  CUDA_VISIBLE_DEVICES  the GPUs that the daemon chose, unless it is set already
                        and --gpus is not
  with --vgpu           its library in LD_PRELOAD and ROTA_DRIVER, its folder in
                        ROTA_VGPU";

pub(super) const DEMO_EXAMPLES: &str = "\
Examples:
  rota demo
  rota demo --programs 6 --seconds 10
  rota demo --json | jq .ratio";

pub(super) const PS_EXAMPLES: &str = "\
Examples:
  rota ps
  rota ps -o json | jq '.tenants[] | select(.state == \"away\")'";

pub(super) const PS_AFTER: &str = "\
States:
  joined   connected, nothing on the GPU yet
  running  has its turn
  frozen   waits, its memory is on the GPU
  moving   waits, its memory is on its way out or in
  away     waits, its memory is in the host's
  paused   waits for `rota resume`
  queued   waits at the door, until there is room for its context";

pub(super) const DESCRIBE_EXAMPLES: &str = "\
Examples:
  rota describe nightly              a job, by its name
  rota describe 4242                 a process
  rota describe GPU-5bc3             a GPU, by the beginning of its UUID
  rota describe gpu0                 the same, by its index";

pub(super) const STATUS_EXAMPLES: &str = "\
Examples:
  rota status
  rota status -o json | jq .running";

pub(super) const PAUSE_EXAMPLES: &str = "\
Examples:
  rota pause nightly
  rota pause --deep nightly        nothing of it is left on the GPU
  rota resume nightly";

pub(super) const SET_EXAMPLES: &str = "\
Examples:
  rota set nightly --weight 3
  rota set nightly --memory 100% --cores 100%     no limits any more
  rota set 4242 --class lc                        the job of this process";

pub(super) const CONFIG_EXAMPLES: &str = "\
Examples:
  rota config show --origin
  rota config show -o json";

pub(super) const DOCTOR_EXAMPLES: &str = "\
Examples:
  rota doctor
  rota doctor --json | jq '.checks[] | select(.verdict == \"fail\")'";

pub(super) const CDI_EXAMPLES: &str = "\
Examples:
  sudo rota cdi generate -o /etc/cdi/rota.json
  docker run --device nvidia.com/gpu=all --device rota.dev/gpu=all IMAGE train
  podman run --device nvidia.com/gpu=all --device rota.dev/gpu=all IMAGE train";

pub(super) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  rota completions bash > ~/.local/share/bash-completion/completions/rota
  rota completions zsh > ~/.zfunc/_rota
  rota completions fish > ~/.config/fish/completions/rota.fish";

pub(super) const MAN_EXAMPLES: &str = "\
Examples:
  rota man | man -l -                read it
  rota man ~/.local/share/man/man1   install one page for each command";
