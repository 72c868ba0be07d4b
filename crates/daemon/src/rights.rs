//! What the daemon may do here, by who runs it.

/// What a daemon cannot do that root does not run.
pub(crate) fn without_root(everybody: bool) -> Option<String> {
    let uid = rustix::process::geteuid();
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let files = files.map_or(String::new(), |files| format!("; at most {files} files can be open"));
    let others = match everybody {
        true => "programs of other users have to be told of this socket",
        false => "programs of other users are not let in, and use the GPU as if this were not there",
    };
    (!uid.is_root()).then(|| format!("run by user {} and not by root: {others}{files}", uid.as_raw()))
}

/// How many files may be open.
pub(crate) fn files_max() -> usize {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
}

/// Every tenant is some files here, and its handles are files on their way. The soft limit is a default, not a wish.
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(cause) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("cannot raise the limit of open files: {cause}");
    }
}
