//! Who logs in at a store, and the option `password_file`.
//!
//! The file is read on every login, so that a rotated password is used without a restart. It is what orchestrators and vaults hand out:
//! a mounted file that they replace.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use super::{RegistryUrl, UrlOptions};
use crate::{Error, ErrorKind, Result};

/// A user, and where the password is. `Debug` shows neither.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    user: String,
    password: Password,
}

#[derive(Clone, PartialEq, Eq)]
enum Password {
    Given(String),
    File(PathBuf),
}

impl Login {
    /// Takes user and password of a URL, or its user and the option `password_file`; `None` if it has neither. A password without a user
    /// is that of `unnamed`, if the store has such a user.
    ///
    /// # Errors
    /// `InvalidInput` if one of user and password is missing, or if there are two passwords.
    pub fn from_url(url: &RegistryUrl, options: &mut UrlOptions, unnamed: Option<&str>) -> Result<Option<Self>> {
        Self::read(url.user(), url.password(), options.text("password_file"), unnamed).map_err(|why| {
            Error::invalid("use", format!("registry URL {:?}", url.to_string()), format!("it names {why}"))
        })
    }

    /// The same from options with these names, for a store with accounts in two places.
    ///
    /// # Errors
    /// Those of [`from_url`](Self::from_url).
    pub fn from_options(
        options: &mut UrlOptions,
        [user, password, file]: [&'static str; 3],
        unnamed: Option<&str>,
    ) -> Result<Option<Self>> {
        let (name, given, path) = (options.text(user), options.text(password), options.text(file));
        Self::read(name.as_deref(), given.as_deref(), path, unnamed)
            .map_err(|why| options.invalid(password, &format!("and those beside it name {why}")))
    }

    fn read(
        user: Option<&str>,
        password: Option<&str>,
        file: Option<String>,
        unnamed: Option<&str>,
    ) -> Result<Option<Self>, &'static str> {
        let password = match (password, file) {
            (None, None) => None,
            (Some(password), None) => Some(Password::Given(password.to_owned())),
            (None, Some(path)) => Some(Password::File(path.into())),
            (Some(_), Some(_)) => return Err("a password and a file with one; give one of them"),
        };
        match (user.filter(|user| !user.is_empty()).or(unnamed), password) {
            (_, None) if user.is_none() => Ok(None),
            (_, None) => Err("a user without a password; write user:password@host, or name a file with it"),
            (None, Some(_)) => Err("a password without a user; write user:password@host"),
            (Some(user), Some(password)) => Ok(Some(Self { user: user.to_owned(), password })),
        }
    }

    /// The user. Do not print it.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The password as it is now. Reads the file, which is small, without yielding, and leaves its last line break out. Do not print it.
    ///
    /// # Errors
    /// `InvalidInput`, naming the file, if it cannot be read, has no text, or is larger than 64 KiB.
    pub fn password(&self) -> Result<String> {
        let path = match &self.password {
            Password::Given(password) => return Ok(password.clone()),
            Password::File(path) => path,
        };
        let unusable =
            |why: String| Error::new(ErrorKind::InvalidInput, "read", format!("password file {}", path.display()), why);
        let mut text = String::new();
        // The error of bytes that are no text quotes nothing of them.
        File::open(path)
            .and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text))
            .map_err(|error| unusable(error.to_string()).with_source(error))?;
        if text.len() as u64 > LONGEST {
            return Err(unusable("it is too long for a password".to_owned()));
        }
        match text.strip_suffix('\n').map_or(&*text, |text| text.strip_suffix('\r').unwrap_or(text)) {
            "" => Err(unusable("it is empty".to_owned())),
            password => Ok(password.to_owned()),
        }
    }
}

/// More than any token; a path that leads to a large file by mistake is not read into memory.
const LONGEST: u64 = 64 * 1024;

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(***)")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn login(text: &str, unnamed: Option<&str>) -> Result<Option<Login>> {
        let url: RegistryUrl = text.parse()?;
        let mut options = url.options();
        let login = Login::from_url(&url, &mut options, unnamed)?;
        options.finish()?;
        Ok(login)
    }

    #[test]
    fn a_login_is_whole_or_refused() {
        assert_eq!(login("etcd://h", None).unwrap(), None);
        assert_eq!(login("redis://h", Some("default")).unwrap(), None);
        let whole = login("etcd://a:b@h", None).unwrap().unwrap();
        assert_eq!((whole.user(), whole.password().unwrap().as_str()), ("a", "b"));
        assert_eq!(login("redis://:b@h", Some("default")).unwrap().unwrap().user(), "default");
        assert_eq!(login("redis://h?password_file=/x", Some("default")).unwrap().unwrap().user(), "default");
        for (text, said) in [
            ("etcd://a@h", "a user without a password"),
            ("etcd://:b@h", "a password without a user"),
            ("etcd://h?password_file=/x", "a password without a user"),
            ("etcd://a:b@h?password_file=/x", "give one of them"),
        ] {
            assert!(login(text, None).unwrap_err().to_string().contains(said), "{text}");
        }
    }

    #[test]
    fn r04_a_password_is_read_anew_and_never_shown() {
        let folder = std::env::temp_dir().join(format!("discovery-login-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("password");
        let login = login(&format!("etcd://someone@h?password_file={}", path.display()), None).unwrap().unwrap();
        for (text, read) in [
            ("one\n", Some("one")),
            ("two\r\n", Some("two")),
            (" three ", Some(" three ")),
            ("", None),
            ("\n", None),
            (&*"x".repeat(70_000), None),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(login.password().ok().as_deref(), read);
        }
        fs::write(&path, b"\xffhunter2").unwrap();
        let error = login.password().unwrap_err();
        assert!(error.to_string().contains("password file"), "{error}");
        assert!(!format!("{login:?} {error:?} {error:#?}").contains("hunter2"));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(login.password().unwrap_err().kind(), ErrorKind::InvalidInput);
        // A file without an end, and without a length.
        let endless = Login { user: "someone".to_owned(), password: Password::File("/dev/zero".into()) };
        assert_eq!(endless.password().unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
