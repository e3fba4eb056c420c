//! Who commands run as, by number: as the engine finds it, in the sandbox's own list of users.

use super::Files;
use super::unpack::unpack;
use crate::daemon::failure::Failure;
use crate::engine::FileKind;
use crate::proto::copy::Owner;

/// Most bytes of a list of users or groups that are read.
const MAX_LIST_BYTES: u64 = 1024 * 1024;

impl Files {
    /// The user that commands run as, and the group.
    pub(super) async fn owner(&self) -> Result<Owner, Failure> {
        let user = match self.session.spec.user.clone().or_else(|| self.driver.caller(&self.session)) {
            Some(user) => Some(user),
            None => self.defaults().await?.user,
        };
        let Some(user) = user.filter(|user| !user.is_empty()) else { return Ok(Owner { uid: 0, gid: 0 }) };
        let (name, group) = user.split_once(':').map_or((user.as_str(), None), |(n, g)| (n, Some(g)));
        let numbers = (name.parse::<u32>().ok(), group.map(str::parse::<u32>));
        if let (Some(uid), Some(Ok(gid))) = numbers {
            return Ok(Owner { uid, gid });
        }
        if numbers.0 == Some(0) && group.is_none() {
            return Ok(Owner { uid: 0, gid: 0 });
        }
        let users = self.small_file("/etc/passwd").await?;
        let listed = find(&users, name).map(|fields| (number(fields.get(2)), number(fields.get(3))));
        let (uid, own) = match (listed, numbers.0) {
            (Some((Some(uid), gid)), _) => (uid, gid.unwrap_or(0)),
            (_, Some(uid)) => (uid, 0),
            _ => return Err(self.unknown("user", name)),
        };
        let gid = match (group, numbers.1) {
            (None, _) => own,
            (_, Some(Ok(gid))) => gid,
            (Some(group), _) => {
                let groups = self.small_file("/etc/group").await?;
                let gid = find(&groups, group).and_then(|fields| number(fields.get(2)));
                gid.ok_or_else(|| self.unknown("group", group))?
            }
        };
        Ok(Owner { uid, gid })
    }

    fn unknown(&self, what: &str, name: &str) -> Failure {
        let session = self.session.name.as_str();
        let text =
            format!("session '{session}' runs commands as {what} '{name}', whom its sandbox does not have");
        Failure::params(text).about(session)
    }

    /// The beginning of a file as text; nothing where there is no such file.
    async fn small_file(&self, path: &str) -> Result<String, Failure> {
        let found = self.follow(path).await?;
        if found.stat.is_none_or(|stat| stat.kind != FileKind::File) {
            return Ok(String::new());
        }
        let archive = self.driver.0.engine.read_archive(&self.sandbox, &found.path).await;
        let archive = archive.map_err(|error| self.explain(error))?;
        let bytes = unpack(archive, |mut archive| {
            let mut bytes = Vec::new();
            if let Some(entry) = archive.entries()?.next() {
                std::io::Read::read_to_end(&mut std::io::Read::take(entry?, MAX_LIST_BYTES), &mut bytes)?;
            }
            Ok(bytes)
        });
        Ok(String::from_utf8_lossy(&bytes.await?).into_owned())
    }
}

/// The fields of the line that begins with this name.
fn find<'a>(list: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let line = |line: &'a str| line.split(':').collect::<Vec<_>>();
    // A number stands for itself, and for the group of the user who has it.
    list.lines().map(line).find(|fields| fields[0] == name || (fields.len() > 3 && fields[2] == name))
}

fn number(field: Option<&&str>) -> Option<u32> {
    field.and_then(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let list = "root:x:0:0:root:/root:/bin/sh\ndev:x:1000:100:dev:/home/dev:/bin/sh\nbroken\n";
        assert_eq!(find(list, "dev").map(|f| (f[2], f[3])), Some(("1000", "100")));
        assert_eq!(find(list, "1000").map(|f| f[3]), Some("100"));
        assert_eq!(find(list, "de"), None);
        assert_eq!(number(find(list, "broken").expect("a line").get(2)), None);
    }
}
