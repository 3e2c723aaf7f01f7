//! The option `acl`: rights on what is created, beside those of its creator.
//!
//! They are written as `zkCli.sh` writes them, `scheme:id:rights`, with commas between: `world:anyone:r,digest:reader:…=:r`.

use discovery_core::{Result, UrlOptions};
use zookeeper_client::{Acl, AuthId, Permission};

/// Takes the option. Without a user everybody has all rights, and there is nothing to add.
///
/// # Errors
/// `InvalidInput` for anything else than rights, or without a user.
pub(crate) fn from_url(options: &mut UrlOptions, authenticated: bool) -> Result<Vec<Acl>> {
    let Some(text) = options.text("acl") else { return Ok(Vec::new()) };
    if !authenticated {
        return Err(options.invalid("acl", "needs a user; without one everybody has all rights"));
    }
    let acls = text.split(',').map(parse).collect::<Option<Vec<_>>>();
    acls.ok_or_else(|| {
        options
            .invalid("acl", "is no list of rights; write scheme:id:rights, such as world:anyone:r, with commas between")
    })
}

fn parse(text: &str) -> Option<Acl> {
    let (scheme, rest) = text.split_once(':')?;
    let (id, rights) = rest.rsplit_once(':')?;
    if scheme.is_empty() || id.is_empty() || rights.is_empty() {
        return None;
    }
    let mut all = Permission::NONE;
    for right in rights.chars() {
        all = all
            | match right {
                'c' => Permission::CREATE,
                'd' => Permission::DELETE,
                'r' => Permission::READ,
                'w' => Permission::WRITE,
                'a' => Permission::ADMIN,
                _ => return None,
            };
    }
    Some(Acl::new(all, AuthId::new(scheme, id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use discovery_core::RegistryUrl;

    fn read(query: &str, authenticated: bool) -> Result<Vec<Acl>> {
        let mut options = format!("zk://h?{query}").parse::<RegistryUrl>()?.options();
        from_url(&mut options, authenticated)
    }

    #[test]
    fn rights_are_those_of_the_command_line() {
        assert_eq!(read("", false).unwrap(), []);
        let acls = read("acl=world:anyone:r,digest:reader:a+b/c=:rd", true).unwrap();
        let reader = Acl::new(Permission::READ | Permission::DELETE, AuthId::new("digest", "reader:a+b/c="));
        assert_eq!(acls, [Acl::new(Permission::READ, AuthId::anyone()), reader]);
        assert!(read("acl=world:anyone:r", false).unwrap_err().to_string().contains("needs a user"));
        for bad in ["acl=", "acl=r", "acl=world:anyone", "acl=world:anyone:x", "acl=::r", "acl=world:anyone:r,"] {
            assert!(read(bad, true).is_err(), "{bad}");
        }
    }
}
