//! Names of users and groups become numbers. Files first, because they are there; then `getent`, which knows all sources that
//! the system is set up to have.

use std::process::{Command, Stdio};

/// A database of names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Accounts {
    Users,
    Groups,
}

impl Accounts {
    /// The number of a name.
    pub(super) fn number(self, name: &str) -> Option<u32> {
        let (file, database) = match self {
            Self::Users => ("/etc/passwd", "passwd"),
            Self::Groups => ("/etc/group", "group"),
        };
        let text = std::fs::read_to_string(file).unwrap_or_default();
        find(&text, name).or_else(|| {
            let asked = Command::new("getent").args([database, name]).stdin(Stdio::null()).output().ok()?;
            find(&String::from_utf8_lossy(&asked.stdout), name)
        })
    }
}

/// In lines of `name:password:number:…`.
fn find(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_whole_one() {
        let text = "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\nbroken\n";
        assert_eq!(find(text, "ada"), Some(1000));
        assert_eq!(find(text, "ad"), None);
        assert_eq!(find(text, "broken"), None);
    }

    #[test]
    fn root_is_known_everywhere() {
        assert_eq!(Accounts::Users.number("root"), Some(0));
        assert_eq!(Accounts::Groups.number("root"), Some(0));
        assert_eq!(Accounts::Users.number("no-such-user-here"), None);
    }
}
