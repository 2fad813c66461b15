//! The reports of the driver about the rights of its role.

use taskharbor_core::{
    Admin,
    admin::{Diagnosis, DiagnosisLevel},
};
use taskharbor_postgres::{Config, PostgresDriver, SchemaName};
use taskharbor_testkit::environment;

use crate::harness::store::{Role, named};

async fn line(driver: &PostgresDriver, what: &str) -> Diagnosis {
    let lines = driver.diagnose().await.unwrap();
    let line = lines.iter().find(|line| line.what == what);
    line.unwrap_or_else(|| panic!("no line {what}: {lines:?}")).clone()
}

#[tokio::test]
async fn each_part_is_told_what_it_may_do() {
    let on = named().await;
    for (part, level) in [
        ("worker", DiagnosisLevel::Fine),
        ("producer", DiagnosisLevel::Warning),
        ("viewer", DiagnosisLevel::Warning),
    ] {
        let driver = on.another_as(Role::Part(part)).await;
        let rights = line(&driver, "rights").await;
        assert_eq!(rights.level, level, "{rights:?}");
        assert!(rights.found.contains(&Role::name(part)), "{rights:?}");
    }
    assert_eq!(line(&on.another().await, "rights").await.level, DiagnosisLevel::Fine);
}

#[tokio::test]
async fn a_worker_that_lacks_a_right_is_told_which() {
    let on = named().await;
    let worker = on.another_as(Role::Part("worker")).await;
    let (sql, role) = (on.sql().await, Role::name("worker"));
    let revoke = format!(
        "REVOKE EXECUTE ON FUNCTION th_evict_v1 FROM {role}; REVOKE DELETE ON th_worker FROM {role}; \
         REVOKE USAGE ON SEQUENCE th_revision FROM {role}"
    );
    sql.batch_execute(&revoke).await.unwrap();
    let rights = line(&worker, "rights").await;
    let regrant = format!("SELECT th_grant('worker', '{role}')");
    sql.batch_execute(&regrant).await.unwrap();
    assert_eq!(rights.level, DiagnosisLevel::Problem, "{rights:?}");
    assert!(rights.found.contains("th_evict_v1, th_revision, th_worker"), "{rights:?}");
    assert!(rights.advice.unwrap().contains("th_grant('worker'"));
    assert_eq!(line(&worker, "rights").await.level, DiagnosisLevel::Fine);
}

#[tokio::test]
async fn a_schema_that_is_missing_or_closed_is_told() {
    let on = named().await;
    let missing = Config::from_url(&environment::required("TASKHARBOR_TEST_POSTGRES")).unwrap();
    let missing = missing.schema(SchemaName::new("th_never_installed").unwrap());
    let missing = PostgresDriver::open(missing).await.unwrap();
    let refused = missing.diagnose().await.unwrap_err().to_string();
    assert!(refused.contains("taskharbor migrate up"), "{refused}");

    let viewer = on.another_as(Role::Part("viewer")).await;
    let (sql, role, schema) = (on.sql().await, Role::name("viewer"), on.schema());
    sql.batch_execute(&format!("REVOKE USAGE ON SCHEMA {schema} FROM {role}")).await.unwrap();
    let found = viewer.diagnose().await.unwrap();
    sql.batch_execute(&format!("GRANT USAGE ON SCHEMA {schema} TO {role}")).await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].found.contains("may not use schema"), "{found:?}");
}
