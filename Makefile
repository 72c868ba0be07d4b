# What people and CI type. Everything real is done by cargo.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
BUNDLE := gpu/bundle

.PHONY: build test unplanted lint style format deny advisories bench demo conformance soak mutants model gpu-bundle clean

# Programs that were linked with librota look for it by the name that it has in itself.
build:
	$(CARGO) build --release --locked --workspace
	@ln -sf librota.so $(TARGET)/release/librota.so.1

# All that needs no GPU and no network beyond fetching the dependencies: what CI runs. Most tests that take long wait, for fake
# programs or for the time of a virtual GPU, so more of them run at once than there are CPUs. Of whole systems, which compute too,
# there are fewer (crates/programs/tests/system/stage/place.rs).
test: export RUST_TEST_THREADS ?= $(shell expr 4 '*' $$(nproc))
# Model checks and simulations make and drop many small things of a few sizes: the C library keeps more of them at hand than it
# does by itself, which is a fifth less work for them.
test: export GLIBC_TUNABLES ?= glibc.malloc.tcache_count=500
# Clippy looks at everything while it is built, as to look at it apart takes a minute more. What is built so is in a folder of its
# own: it is not what cargo builds otherwise, though it does the same.
test: export RUSTC_WORKSPACE_WRAPPER := clippy-driver
test: export RUSTFLAGS := $(RUSTFLAGS) -D warnings
test: export CARGO_TARGET_DIR := $(TARGET)/test
test: format unplanted
	$(CARGO) test --locked --workspace --all-targets --no-run
	$(CARGO) test --locked --workspace

# Bugs that tests put into the daemon (crates/mover/src/mover/planted.rs) are in no build without tests.
unplanted:
	@if $(CARGO) tree --locked --workspace --edges features,no-dev | grep 'feature "planted"'; \
	then echo "unplanted: what is not for tests has this feature"; exit 1; fi

lint: style deny

# What make builds here it builds whole: notes for the next build would cost more than they save.
test style: export CARGO_INCREMENTAL ?= 0

format:
	$(CARGO) fmt --all --check

style: format
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

# Licences, doubles and sources of the dependencies, where the tool is there.
deny:
	@if $(CARGO) deny --version >/dev/null 2>&1; \
	then $(CARGO) deny --locked check licenses bans sources; \
	else echo "lint: cargo-deny is not installed, dependencies are not checked"; fi

# Known weaknesses in the dependencies. Apart from lint, because the list of them comes over the network.
advisories:
	$(CARGO) deny --locked check advisories

# How fast the core is, here, what a request to the keeper takes, and whether a virtual GPU's work takes as long as its
# description says; everything else needs a GPU.
bench: gpu-bundle
	$(CARGO) bench --locked -p rota-sim --bench core
	$(CARGO) bench --locked -p rota-keeper --bench requests
	$(CARGO) bench --locked -p rota-vgpu-device --bench costs
	@echo
	@echo "The benchmarks of whole programs need a GPU. On a machine with one, from the root of this repository:"
	@echo "  gpu/run-all.sh"
	@echo "See gpu/README.md."

# Without a GPU: first four real programs on a virtual one that is a hundredth of 16 GiB, one after the other and by turns, then
# the same four of 12 GiB simulated, under rota and under what it is compared with.
# On a terminal cargo shows how far it is.
demo:
	@echo "demo: building rota, its virtual GPU and the programs of the demo, which takes some minutes the first time" >&2
	@if [ -t 2 ]; then quiet=; else quiet=--quiet; fi; $(CARGO) build --release --locked $$quiet -p rota-cli -p rota-daemon -p rota-shim -p rota-nvml-shim -p rota-vgpu -p rota-vgpu-nvml -p rota-vgpu-device -p rota-programs
	@$(TARGET)/release/rota demo
	@echo
	@$(TARGET)/release/rota sim compare seed-4x12 --timeline $(TARGET)/demo/seed-4x12.svg
	@echo
	@echo "The timeline is a picture: open $(TARGET)/demo/seed-4x12.svg in a browser."
	@echo "More: $(TARGET)/release/rota sim list"

# Whether the virtual GPU answers as the real driver did: a few hundred checks and random calls, line by line.
conformance:
	$(CARGO) build --release --locked -p rota-programs -p rota-vgpu -p rota-vgpu-device
	ROTA_BUNDLE=$(TARGET)/release OUT=$(TARGET)/conformance gpu/conformance.sh --virtual

# Long random histories: of the mover with its keeper and its cellar, always the same for a seed; then of whole systems, eight
# programs on two virtual GPUs for a minute with one of them killed every two seconds, and ten storms of a thousand events on
# one GPU where everything goes wrong; warm-ups, which need a machine that does nothing else; then what tests freeze at random,
# more often than they do. ROTA_SEED chooses what happens, ROTA_EVENTS how long the first are.
soak: export ROTA_EVENTS ?= 2000
soak:
	$(CARGO) build --locked --workspace
	$(CARGO) test --locked -p rota-mover --lib -- --nocapture a_thousand_events
	$(CARGO) test --locked -p rota-programs --test system -- --ignored --nocapture --test-threads 1 soak storm warm_ups
	ROTA_TURNS=200 $(CARGO) test --locked -p rota-programs --test system -- --nocapture --test-threads 1 \
		freezes_at_random it_moves_under_all_of_its_addresses

# Can the core's tests fail? More than two hundred mutants of it, always the same, each against tests of a few seconds: the
# model checker, which takes longer, is not even built. About an hour. What survives, and why: docs/mutants.md.
mutants:
	@$(CARGO) mutants --version >/dev/null 2>&1 || { echo "mutants: needs cargo-mutants: cargo install --locked cargo-mutants"; exit 1; }
	env -u CARGO_TARGET_DIR RUST_BACKTRACE=0 $(CARGO) mutants -p rota-sched --shard 0/9 --sharding round-robin --no-shuffle \
		--timeout 60 -o $(TARGET)/mutants --cargo-arg=--config=profile.dev.package.rota-sched.opt-level=1 \
		--cargo-arg=--lib --cargo-arg=--test=lives

# The core explored to closure, in larger configurations than with all tests: about a quarter of an hour on two cores.
model:
	$(CARGO) test --release --locked -p rota-sched --test model -- --ignored --nocapture --test-threads 1

# What a GPU machine needs, built here: it may have no toolchain.
gpu-bundle: build
	mkdir -p $(BUNDLE)
	install -m 755 $(TARGET)/release/rota $(TARGET)/release/rotad $(BUNDLE)/
	install -m 755 $(TARGET)/release/conformance $(TARGET)/release/misuse $(TARGET)/release/worker $(TARGET)/release/hasher $(BUNDLE)/
	install -m 644 $(TARGET)/release/librota_shim.so $(TARGET)/release/librota_nvml.so $(TARGET)/release/librota.so $(BUNDLE)/
	install -m 644 crates/sdk/include/rota.h $(BUNDLE)/

clean:
	$(CARGO) clean
	rm -rf $(BUNDLE)
