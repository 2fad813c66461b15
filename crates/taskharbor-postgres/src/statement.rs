//! The statements that the driver sends, made for one schema.
//!
//! Each is a single call of a function, a single insert or a single read, in autocommit: one round trip, whole or
//! not at all wherever it is cut, and safe behind a pooler. What the functions do is in `sql/`.

use crate::SchemaName;

macro_rules! statements {
    ($($name:ident: $text:expr;)*) => {
        /// The text of every statement.
        #[derive(Debug)]
        pub(crate) struct Statements {
            $(pub(crate) $name: String,)*
        }

        impl Statements {
            pub(crate) fn of(schema: &SchemaName) -> Self {
                Self { $($name: schema.sql($text),)* }
            }
        }
    };
}

statements! {
    enqueue: "SELECT ord, 'existing'::text AS verdict, existing AS detail, NULL::text[] AS wakes FROM {schema}.th_enqueue_v1($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19)";
    enqueue_plain: include_str!("sql/enqueue_plain.sql");
    enqueue_bare: include_str!("sql/enqueue_bare.sql");
    enqueue_flow: "SELECT NULL::bigint AS ord, verdict, id AS detail, wakes FROM {schema}.th_enqueue_flow_v1($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,$20,$21,$22,$23)";
    reserve: crate::reserve::STATEMENT;
    extend: "SELECT verdict, lease_expires_at, cancel_requested FROM {schema}.th_extend_v1($1,$2,$3,$4,$5,$6,$7)";
    ack: "SELECT remaining, wakes FROM {schema}.th_ack_v1($1,$2,$3,$4)";
    settle: "SELECT ord, verdict, detail, wakes FROM {schema}.th_settle_v1($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15)";
    expand: "SELECT ord, verdict, detail, wakes FROM {schema}.th_expand_v1($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,$20,$21,$22,$23,$24,$25,$26)";
    outputs: "SELECT item, total, kind, output, reason, join_id, join_len, reading, list_id, list_len, list_reading, outputs FROM {schema}.th_outputs_v1($1,$2,$3,$4,$5)";
    manage: "SELECT state, denied, detail, wakes FROM {schema}.th_manage_v1($1,$2,$3,$4,$5,$6,$7,$8)";
    configure: "SELECT ord, denied, name, detail FROM {schema}.th_configure_v1($1,$2,$3,$4)";
    lanes: "SELECT l.*, u.limits, u.inflight AS queue_inflight, u.tat, u.held_until FROM {schema}.th_lanes_v1($1,$2,$3,$4) l LEFT JOIN {schema}.th_usage_v1($1, NULL, $4) u ON true ORDER BY l.lane COLLATE \"C\"";
    settings: "SELECT * FROM {schema}.th_settings_v1($1,$2,$3,$4,$5)";
    due_schedules: "SELECT n.after_now, s.* FROM {schema}.th_next_slot_v1($1) AS n (after_now) LEFT JOIN {schema}.th_due_schedules_v1($1,$2,$3,$4) s ON true ORDER BY s.next_slot, s.name";
    fire: "SELECT ord, refused, detail, existing, NULL::text[] AS wakes FROM {schema}.th_fire_v1($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,$20)";
    fire_flows: "SELECT ord, refused, detail, existing, wakes FROM {schema}.th_fire_flows_v1($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,$20)";
    announce: include_str!("sql/announce.sql");
    withdraw: "DELETE FROM {schema}.th_worker WHERE holder = $1 AND incarnation = $2";
    workers: "SELECT w.holder, w.incarnation, w.info, w.started_at, w.seen_at, w.expires_at FROM {schema}.th_worker w WHERE (w.holder, w.incarnation) > ($1, $2) AND CASE WHEN w.expires_at > $5 THEN $3 ELSE $4 END ORDER BY w.holder, w.incarnation LIMIT $6";
    evict: "SELECT is_replaced, leases, busy, wakes FROM {schema}.th_evict_v1($1,$2,$3)";
    prune: "SELECT {schema}.th_prune_v1($1,$2,$3,$4,$5)";
    export_units: "SELECT j.seq, j.flow FROM {schema}.th_job j WHERE j.seq > $1 AND (j.flow IS NULL OR j.seq = least((SELECT min(l.seq) FROM {schema}.th_live l WHERE l.flow = j.flow), (SELECT min(f.first) FROM {schema}.th_finished f WHERE f.flow = j.flow))) ORDER BY j.seq LIMIT $2";
    export: include_str!("sql/export.sql");
    export_keys: "SELECT k.queue, k.key, k.job, k.held_until FROM {schema}.th_key k WHERE k.seq IS NULL AND (k.queue, k.key) > ($1, $2) ORDER BY k.queue, k.key LIMIT $3";
    import: "SELECT verdict, id FROM {schema}.th_import_v1($1,$2,$3,$4)";
    import_key: "SELECT verdict, id FROM {schema}.th_import_key_v1($1,$2,$3,$4)";
    check: "SELECT th_check FROM {schema}.th_check()";
    diagnose: include_str!("sql/diagnose.sql");
    inspect: include_str!("sql/inspect.sql");
    list: "SELECT * FROM {schema}.th_list_v1($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18)";
    counts: include_str!("sql/counts.sql");
    flows: "SELECT * FROM {schema}.th_flows_v1($1,$2,$3,$4,$5,$6,$7)";
    time: "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, pg_is_in_recovery()";
}
