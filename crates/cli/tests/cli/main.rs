//! `rota` from outside: the real executable against a daemon that knows one answer.

mod fake_daemon;
mod ps;
mod run;
mod vgpu;
