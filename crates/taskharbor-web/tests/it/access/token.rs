//! Tokens: how they are kept, and that a change of the file takes effect at once.

use std::{fs, time::Duration};

use axum::http::StatusCode;
use serde_json::json;
use taskharbor_web::{Access, Role, TokenFile, TokenFileError};
use tokio::time::sleep;

use super::{A_JOB, add, get, post, token_file, with_tokens};
use crate::stock::enqueue;

#[tokio::test]
async fn a_token_lets_its_owner_in_and_nothing_else_does() {
    let file = token_file();
    let token = add(&file, "ada", Role::Operator);
    let rig = with_tokens(&file);
    let session =
        rig.send(get("/v1/session", &[("authorization", &format!("bearer {token}"))])).await;
    let session = session.ok();
    assert_eq!((&session["name"], &session["role"]), (&"ada".into(), &"operator".into()));
    assert_eq!((&session["payloads"], &session["workers"]), (&false.into(), &false.into()));
    let none = rig.send(get("/v1/session", &[])).await;
    assert_eq!(none.problem(), (401, "sign_in".to_owned()));
    let digest = file.tokens().unwrap()[0].sha256.clone();
    for wrong in [
        "Bearer th_0".to_owned(),
        format!("Bearer {}", &token[..token.len() - 1]),
        format!("Bearer {token}0"),
        format!("Bearer {}", token.to_uppercase()),
        format!("Bearer {digest}"),
        format!("Bearer th_{digest}"),
        "Bearer".to_owned(),
    ] {
        let reply = rig.send(get("/v1/session", &[("authorization", &wrong)])).await;
        assert_eq!(reply.problem(), (401, "invalid_token".to_owned()), "{wrong:?}");
    }
    for other in [format!("Basic {token}"), "Basic dTpw".to_owned(), String::new()] {
        let reply = rig.send(get("/v1/session", &[("authorization", &other)])).await;
        assert_eq!(reply.problem(), (401, "sign_in".to_owned()), "{other:?}");
    }
    // The pages are served, so that people can sign in.
    assert_eq!(rig.send(get("/", &[])).await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_file_holds_digests_and_belongs_to_its_owner() {
    let file = token_file();
    let tokens = [add(&file, "ada", Role::Admin), add(&file, "otto", Role::Viewer)];
    assert_ne!(tokens[0], tokens[1]);
    let text = fs::read_to_string(file.path()).unwrap();
    for token in &tokens {
        let digits = token.strip_prefix("th_").unwrap();
        assert_eq!(digits.len(), 64, "256 bits: {token}");
        assert!(!text.contains(digits), "{text}");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let again = file.add(&Access::new("ada", Role::Viewer), String::new());
    assert!(matches!(again, Err(TokenFileError::Duplicate(_))), "{again:?}");
    for name in ["", " ", "a\nb", &"x".repeat(101)] {
        let refused = file.add(&Access::new(name, Role::Viewer), String::new());
        assert!(matches!(refused, Err(TokenFileError::Name(_))), "{name:?}: {refused:?}");
    }
    assert_eq!(fs::read_to_string(file.path()).unwrap(), text, "nothing was changed");
}

#[cfg(unix)]
#[test]
fn a_change_keeps_the_permissions_of_the_file_and_a_link_to_it() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    let file = token_file();
    add(&file, "ada", Role::Admin);
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o640)).unwrap();
    let before = fs::metadata(file.path()).unwrap();
    let link = TokenFile::new(file.path().with_extension("link"));
    // It may be left from an earlier run.
    let _ = fs::remove_file(link.path());
    symlink(file.path(), link.path()).unwrap();
    add(&link, "otto", Role::Viewer);
    assert!(file.remove("ada").unwrap());
    let after = fs::metadata(file.path()).unwrap();
    assert_eq!(after.permissions().mode() & 0o777, 0o640);
    assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
    assert!(fs::symlink_metadata(link.path()).unwrap().is_symlink());
    let names = |file: &TokenFile| file.tokens().unwrap()[0].name.clone();
    assert_eq!((names(&file), names(&link)), ("otto".to_owned(), "otto".to_owned()));
    // A link to nothing stays as it is, and so does what it names.
    fs::remove_file(file.path()).unwrap();
    let refused = link.add(&Access::new("eve", Role::Viewer), String::new());
    assert!(matches!(refused, Err(TokenFileError::File { .. })), "{refused:?}");
    assert!(!file.path().exists());
}

#[tokio::test]
async fn a_removed_token_is_refused_at_the_next_request() {
    let file = token_file();
    let token = add(&file, "ada", Role::Admin);
    let rig = with_tokens(&file);
    let bearer = format!("Bearer {token}");
    rig.send(get("/v1/stores", &[("authorization", &bearer)])).await.ok();
    assert!(file.remove("ada").unwrap());
    let reply = rig.send(get("/v1/stores", &[("authorization", &bearer)])).await;
    assert_eq!(reply.problem(), (401, "invalid_token".to_owned()));
    assert!(!file.remove("ada").unwrap());
    let new = add(&file, "ada", Role::Viewer);
    rig.send(get("/v1/stores", &[("authorization", &format!("Bearer {new}"))])).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_sweep_ends_with_the_token_that_it_was_started_with() {
    let file = token_file();
    let ada = format!("Bearer {}", add(&file, "ada", Role::Operator));
    let otto = format!("Bearer {}", add(&file, "otto", Role::Operator));
    let rig = with_tokens(&file);
    enqueue(&rig, "work", "email:send", 2_000).await;
    let headers = [("authorization", &*ada)];
    let mut wanted = json!({"action": "cancel", "filter": {"queue": "work"}});
    let path = "/v1/main/sweeps/preview";
    let preview = rig.send(post(path, &wanted.to_string(), &headers)).await.ok();
    (wanted["digest"], wanted["rate_per_s"]) = (preview["digest"].clone(), json!(10));
    let started = rig.send(post("/v1/main/sweeps", &wanted.to_string(), &headers)).await.ok();
    let path = format!("/v1/main/sweeps/{}", started["id"].as_str().unwrap());
    let shown = async || rig.send(get(&path, &[("authorization", &otto)])).await.ok();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(shown().await["state"], "running");
    // Another token of this name may do the same.
    assert!(file.remove("ada").unwrap());
    add(&file, "ada", Role::Admin);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(shown().await["state"], "running");
    assert!(file.remove("ada").unwrap());
    add(&file, "ada", Role::Viewer);
    sleep(Duration::from_secs(16)).await;
    let sweep = shown().await;
    assert_eq!(sweep["state"], "stopped", "{sweep}");
    assert!(sweep["error"].as_str().unwrap().contains("token"), "{sweep}");
}

#[tokio::test]
async fn a_file_that_cannot_be_trusted_is_refused() {
    let file = token_file();
    let token = add(&file, "ada", Role::Admin);
    let rig = with_tokens(&file);
    let bearer = format!("Bearer {token}");
    let good = fs::read_to_string(file.path()).unwrap();
    for bad in ["", "{", "[]", "{\"tokens\": [{\"name\": \"a\"}]}", &good.replace("admin", "god")] {
        fs::write(file.path(), bad).unwrap();
        let reply = rig.send(get("/v1/stores", &[("authorization", &bearer)])).await;
        assert_eq!(reply.problem(), (503, "tokens_unreadable".to_owned()), "{bad}");
        assert!(!reply.text.contains("access-"), "the path stays on the server: {}", reply.text);
    }
    fs::write(file.path(), &good).unwrap();
    rig.send(get("/v1/stores", &[("authorization", &bearer)])).await.ok();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let set_mode = |mode| {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        };
        // The content is the one that was read.
        set_mode(0o666);
        let reply = rig.send(get("/v1/stores", &[("authorization", &bearer)])).await;
        assert_eq!(reply.problem(), (503, "tokens_unreadable".to_owned()));
        set_mode(0o600);
        rig.send(get("/v1/stores", &[("authorization", &bearer)])).await.ok();
    }
}

#[tokio::test]
async fn only_a_token_for_workers_opens_the_worker_face() {
    let file = token_file();
    let admin = add(&file, "ada", Role::Admin);
    let access = Access::new("python", Role::Viewer).with_workers();
    let worker = file.add(&access, String::new()).unwrap();
    let rig = with_tokens(&file);
    let path = "/v1/main/work/enqueue";
    let refused =
        rig.send(post(path, A_JOB, &[("authorization", &format!("Bearer {admin}"))])).await;
    assert_eq!(refused.problem(), (403, "needs_workers".to_owned()));
    let bearer = format!("Bearer {worker}");
    let stored = rig.send(post(path, A_JOB, &[("authorization", &bearer)])).await.ok();
    assert_eq!(stored.to_string().matches("\"id\"").count(), 1, "{stored}");
}
