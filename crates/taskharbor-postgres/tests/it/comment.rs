//! Comments of the schema, which a DBA reads in psql: every object has one.

use crate::harness::store::named;

/// Everything that `\d+`, `\df+`, `\dT+` and `\ds+` show of the schema.
const WITHOUT_COMMENT: &str = "
SELECT 'column ' || c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'v') AND a.attnum > 0 AND NOT a.attisdropped
      AND col_description(c.oid, a.attnum) IS NULL
UNION ALL SELECT 'relation ' || c.relname FROM pg_class c
    WHERE c.relnamespace = $1::regnamespace AND c.relkind IN ('r', 'v', 'S') AND obj_description(c.oid, 'pg_class') IS NULL
UNION ALL SELECT 'function ' || p.proname FROM pg_proc p
    WHERE p.pronamespace = $1::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL
UNION ALL SELECT 'type ' || t.typname FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
    WHERE t.typnamespace = $1::regnamespace AND (t.typtype = 'e' OR c.relkind = 'c') AND obj_description(t.oid, 'pg_type') IS NULL
ORDER BY 1";

#[tokio::test]
async fn everything_in_the_schema_has_a_comment() {
    let on = named().await;
    let sql = on.sql().await;
    let rows = sql.query(WITHOUT_COMMENT, &[&on.schema()]).await.unwrap();
    let without: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    assert!(without.is_empty(), "put a comment before it, or into comment.sql: {without:#?}");
}

#[tokio::test]
async fn comments_name_what_there_is() {
    let on = named().await;
    let sql = on.sql().await;
    let rows = sql
        .query(
            "SELECT DISTINCT w[1] FROM pg_description d
             CROSS JOIN LATERAL regexp_matches(d.description, '\\mth_[a-z_0-9]*[a-z0-9]\\M', 'g') AS w
             WHERE d.objoid IN (SELECT oid FROM pg_class WHERE relnamespace = $1::text::regnamespace)
               AND NOT EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = $1::regnamespace AND c.relname = w[1])
               AND NOT EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = $1::regnamespace AND p.proname = w[1])",
            &[&on.schema()],
        )
        .await
        .unwrap();
    let unknown: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[tokio::test]
async fn the_words_of_every_enum_are_explained() {
    let on = named().await;
    let sql = on.sql().await;
    let rows = sql
        .query(
            "SELECT t.typname || ' ' || e.enumlabel FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid
             WHERE t.typnamespace = $1::text::regnamespace AND obj_description(t.oid, 'pg_type') !~ ('\\m' || e.enumlabel || '\\M')",
            &[&on.schema()],
        )
        .await
        .unwrap();
    let unexplained: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    assert!(unexplained.is_empty(), "{unexplained:?}");
}
