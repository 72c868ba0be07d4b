//! `rota` from outside: the real executable against a daemon that knows one answer.

mod cdi;
mod fake_daemon;
mod jobs;
mod machine;
mod pages;
mod ps;
mod run;
mod terminal;
mod vgpu;
mod views;
