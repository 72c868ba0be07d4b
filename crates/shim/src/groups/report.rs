//! What the daemon is told about the groups.
//!
//! A report with the page's generation says: these are all channels that can run, freeze them and nothing of this program
//! runs. The daemon then moves memory, so a report may say that only where it is true. One that leaves something out
//! keeps the generation of the last complete one; while the page is ahead of that, the daemon does not freeze.
//!
//! Groups that are not scheduled yet are left out: they cannot run. And the driver does not bear it: a channel that is
//! frozen and thawed before its group was ever scheduled may never run at all (H200, driver 580).

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use channels::Group;
use wire::{ChannelGroup, FILES_MAX, FileId, SharedPage, ToDaemon};

use super::{tracker, whose};
use crate::gpus;
use crate::guard::lock;
use crate::session::Session;

/// When the next report is due without a change of the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Everything that can be said has been said.
    No,
    /// More files are left than one message can carry.
    AtOnce,
    /// A file could not be copied, most often because the program has too many open for the moment.
    Soon,
}

/// The control files that the daemon has, by file number and client.
///
/// The client belongs to the key because a number may come to mean another file. A file that no group of the last
/// report uses is forgotten on both sides, and gets a new name if it is needed again.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    files: BTreeMap<(RawFd, u32), FileId>,
    last_file: u32,
    /// Of the last complete report.
    generation: u64,
    last: Option<ToDaemon>,
}

/// What the tracker knows at one moment.
struct Seen {
    groups: Vec<Group>,
    /// It does not know everything: there were too many objects.
    overlooked: bool,
}

impl Reported {
    /// A report of all groups as they are now, for the session's page; None if it would say nothing new.
    pub(crate) fn next(&mut self, session: &Session) -> (Option<(ToDaemon, Vec<OwnedFd>)>, Again) {
        let see = || {
            let (mut groups, overlooked) = {
                let tracker = lock(tracker());
                (tracker.groups().cloned().collect::<Vec<_>>(), tracker.overlooked() != 0)
            };
            whose::forget_all_but(&groups);
            // Of one that cannot be told apart nobody knows whether it is missing here.
            let mut unknown = false;
            groups.retain(|group| {
                // One that cannot run yet is not asked about.
                let belongs = match group.scheduled || gpus::is_sole() {
                    true => whose::belongs(session, group),
                    false => Some(false),
                };
                unknown |= belongs.is_none() && !group.channels.is_empty();
                belongs == Some(true)
            });
            Seen { groups, overlooked: overlooked || unknown }
        };
        self.next_for(&session.page, see, |file| {
            // SAFETY: only duplicated; if the program has closed it meanwhile, that fails.
            let file = unsafe { BorrowedFd::borrow_raw(file) };
            rustix::io::fcntl_dupfd_cloexec(file, 0).ok()
        })
    }

    fn next_for(
        &mut self,
        page: &SharedPage,
        see: impl FnOnce() -> Seen,
        duplicate: impl Fn(RawFd) -> Option<OwnedFd>,
    ) -> (Option<(ToDaemon, Vec<OwnedFd>)>, Again) {
        // Read before the groups, so that these contain every channel that it counts.
        let generation = page.channel_generation();
        let seen = see();
        if seen.groups.is_empty() && !seen.overlooked && self.last.is_none() {
            return (None, Again::No);
        }
        let Report { groups, new_files, copies, complete, again } = self.report(seen, duplicate);
        if complete {
            self.generation = generation;
        } else if self.generation >= generation {
            // No channel was born, but what was complete no longer is. Before the report leaves, so that the daemon
            // never takes it for complete.
            page.raise_channel_generation();
        }
        let message = ToDaemon::Channels { generation: self.generation, new_files, groups };
        if self.last.as_ref() == Some(&message) {
            return (None, again);
        }
        self.last = Some(message.clone());
        (Some((message, copies)), again)
    }

    fn report(&mut self, seen: Seen, duplicate: impl Fn(RawFd) -> Option<OwnedFd>) -> Report {
        let mut report = Report {
            groups: Vec::with_capacity(seen.groups.len()),
            new_files: Vec::new(),
            copies: Vec::new(),
            complete: !seen.overlooked,
            again: Again::No,
        };
        let mut reachable = Vec::with_capacity(seen.groups.len());
        for group in seen.groups.into_iter().filter(|group| group.scheduled) {
            match group.subdevice {
                Some(subdevice) => reachable.push((subdevice, group)),
                // It may run, and nobody can freeze it.
                None if !group.channels.is_empty() => report.complete = false,
                None => {}
            }
        }
        self.files.retain(|key, _| reachable.iter().any(|(_, group)| (group.file, group.client) == *key));
        for (subdevice, group) in reachable {
            let Some(file) = self.file_of(&group, &mut report, &duplicate) else {
                report.complete = false;
                continue;
            };
            report.groups.push(ChannelGroup {
                file,
                client: group.client,
                subdevice,
                group: group.handle,
                engine: group.engine.engine_type(),
                channels: group.channels,
            });
        }
        report
    }

    /// The daemon's name for a group's file, which is sent along if it has none yet; None if that has to wait.
    fn file_of(
        &mut self,
        group: &Group,
        report: &mut Report,
        duplicate: impl Fn(RawFd) -> Option<OwnedFd>,
    ) -> Option<FileId> {
        let key = (group.file, group.client);
        if let Some(file) = self.files.get(&key) {
            return Some(*file);
        }
        if report.new_files.len() == FILES_MAX {
            // Also where a copy failed: that is tried again with the others.
            report.again = Again::AtOnce;
            return None;
        }
        let Some(copy) = duplicate(group.file) else {
            if report.again == Again::No {
                report.again = Again::Soon;
            }
            return None;
        };
        self.last_file += 1;
        let file = FileId(self.last_file);
        self.files.insert(key, file);
        report.new_files.push(file);
        report.copies.push(copy);
        Some(file)
    }
}

/// A report in the making.
struct Report {
    groups: Vec<ChannelGroup>,
    new_files: Vec<FileId>,
    copies: Vec<OwnedFd>,
    /// All channels that can run are in it.
    complete: bool,
    again: Again,
}

#[cfg(test)]
mod tests;
