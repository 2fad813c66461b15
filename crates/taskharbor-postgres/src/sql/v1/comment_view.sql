-- What the views and their columns mean.
COMMENT ON COLUMN th_jobs.id IS 'Id of the job.';
COMMENT ON COLUMN th_jobs.type IS 'Which handler runs the job.';
COMMENT ON COLUMN th_jobs.queue IS 'Queue in which the job waits.';
COMMENT ON COLUMN th_jobs.payload IS 'What the handler is given, as bytes.';
COMMENT ON COLUMN th_jobs.run_at IS 'Time that was chosen for the job last. NULL: at once.';
COMMENT ON COLUMN th_jobs.timeout_nanos IS 'How long one execution may take, in nanoseconds. 0: as the worker says.';
COMMENT ON COLUMN th_jobs.created_at IS 'When the job was enqueued.';
COMMENT ON COLUMN th_jobs.attempts IS 'How many executions have failed.';
COMMENT ON COLUMN th_jobs.max_attempts IS 'How many executions may fail. 0: as the worker says.';
COMMENT ON COLUMN th_jobs.last_error IS 'What the last execution that failed said. Empty: none failed.';
COMMENT ON COLUMN th_jobs.failed_at IS 'When the last execution failed.';
COMMENT ON COLUMN th_jobs.status IS 'ready, scheduled, blocked, inflight, done, dlq or cancelled, at this moment.';
COMMENT ON COLUMN th_jobs.lease_token IS 'Random half of the token of the lease.';
COMMENT ON COLUMN th_jobs.lease_expires_at IS 'When the lease ends, while the job is inflight.';
COMMENT ON COLUMN th_jobs.dlq_reason IS 'Why the job was dead-lettered.';
COMMENT ON COLUMN th_jobs.dlq_failed_at IS 'When the job was dead-lettered.';
COMMENT ON COLUMN th_jobs.idempotency_key IS 'Key with which the job was enqueued.';
COMMENT ON COLUMN th_jobs.payload_json IS 'The payload as JSON. NULL: it is encoded in another way.';
COMMENT ON COLUMN th_jobs.priority IS 'Higher is granted first.';
COMMENT ON COLUMN th_jobs.due_at IS 'When the job is due, while it waits for its time.';
COMMENT ON COLUMN th_jobs.deliveries IS 'How often the job was granted.';
COMMENT ON COLUMN th_jobs.expirations IS 'How often in a row its lease ran out and its worker may have crashed.';
COMMENT ON COLUMN th_jobs.epoch IS 'How often the job was requeued.';
COMMENT ON COLUMN th_jobs.headers IS 'Names with texts that travel with the job; those that start with th- belong to TaskHarbor.';
COMMENT ON COLUMN th_jobs.holder IS 'Worker that holds the lease.';
COMMENT ON COLUMN th_jobs.cancel_requested IS 'Whether the worker that holds the lease is to stop.';
COMMENT ON COLUMN th_jobs.progress IS 'What the handler reported last.';
COMMENT ON COLUMN th_jobs.output IS 'What the handler returned, as bytes.';
COMMENT ON COLUMN th_jobs.reason IS 'Why the job was dead-lettered or cancelled.';
COMMENT ON COLUMN th_jobs.started_at IS 'When the job was granted last.';
COMMENT ON COLUMN th_jobs.finished_at IS 'When the job ended.';
COMMENT ON COLUMN th_jobs.flow IS 'Id of the flow of which the job is a member.';
COMMENT ON COLUMN th_jobs.pending IS 'For how many parents the job waits, while it is blocked.';
COMMENT ON COLUMN th_jobs.seq IS 'Number of the job, in the order of insertion.';
COMMENT ON COLUMN th_jobs.schedule IS 'Schedule that made the job.';
COMMENT ON COLUMN th_jobs.slot IS 'Slot of the schedule for which the job was made.';
COMMENT ON COLUMN th_jobs.released IS 'What the worker noted that released the job last.';
COMMENT ON COLUMN th_jobs.lane IS 'Lane of the queue. NULL: none.';
COMMENT ON COLUMN th_stats.queue IS 'Name of the queue.';
COMMENT ON COLUMN th_stats.ready IS 'Jobs that are due.';
COMMENT ON COLUMN th_stats.scheduled IS 'Jobs that are due later.';
COMMENT ON COLUMN th_stats.blocked IS 'Jobs that wait for other jobs of their flow.';
COMMENT ON COLUMN th_stats.inflight IS 'Jobs that are held by a worker, also if the lease has ended.';
COMMENT ON COLUMN th_stats.done IS 'Jobs that succeeded and are still kept.';
COMMENT ON COLUMN th_stats.dlq IS 'Jobs in the dead letter queue.';
COMMENT ON COLUMN th_stats.cancelled IS 'Jobs that were cancelled and are still kept.';
COMMENT ON COLUMN th_stats.oldest_ready IS 'Since when the job is due that has been due longest.';
COMMENT ON COLUMN th_stats.paused_since IS 'Since when the queue has been paused. NULL: it is not.';
COMMENT ON COLUMN th_schedules.name IS 'Name of the schedule.';
COMMENT ON COLUMN th_schedules.owner IS 'Service that declared the schedule. NULL: it was put on its own.';
COMMENT ON COLUMN th_schedules.status IS 'waiting, due, paused, or ended if there is no next slot.';
COMMENT ON COLUMN th_schedules.next_slot IS 'Instant for which jobs are made next.';
COMMENT ON COLUMN th_schedules.paused_since IS 'Since when the schedule has been paused.';
COMMENT ON COLUMN th_schedules.stored IS 'Slots whose job was stored.';
COMMENT ON COLUMN th_schedules.skipped IS 'Slots whose job was not stored, because another stood in its place.';
COMMENT ON COLUMN th_schedules.missed IS 'Slots that got no job.';
COMMENT ON COLUMN th_schedules.error IS 'Why the last firing stored no jobs, if it failed.';
COMMENT ON COLUMN th_schedules.firings IS 'The last ten slots that were fired, the newest last.';
COMMENT ON COLUMN th_schedules.definition_json IS 'When the schedule is due and which jobs it makes, as JSON.';
COMMENT ON COLUMN th_schedules.definition IS 'The same as bytes.';
COMMENT ON COLUMN th_schedules.revision IS 'Another with every change.';
COMMENT ON COLUMN th_workers.holder IS 'Name under which the worker holds leases.';
COMMENT ON COLUMN th_workers.incarnation IS 'Tells one start of the worker from another.';
COMMENT ON COLUMN th_workers.status IS 'valid, or overdue after the announcement is over.';
COMMENT ON COLUMN th_workers.started_at IS 'When the worker announced itself first.';
COMMENT ON COLUMN th_workers.seen_at IS 'When the worker announced itself last.';
COMMENT ON COLUMN th_workers.expires_at IS 'First instant at which the announcement is over.';
COMMENT ON COLUMN th_workers.info IS 'What the worker says about itself.';
COMMENT ON COLUMN th_record.ended_as IS 'How the job ended. NULL: it is not terminal.';
COMMENT ON COLUMN th_record.settled_by IS 'Random half of the token that ended the job.';
COMMENT ON COLUMN th_record.job_max_attempts IS 'How many executions may fail, as enqueued.';
COMMENT ON COLUMN th_record.due_at IS 'When the job is due, while it waits for its time.';
COMMENT ON COLUMN th_record.position IS 'Position in the queue, while the job is live.';
COMMENT ON COLUMN th_record.is_live IS 'Whether the job is not terminal.';
COMMENT ON COLUMN th_record.available_at IS 'Position in the queue at the last grant; when the job was enqueued, if it is terminal or blocked.';
COMMENT ON COLUMN th_record.priority IS 'Priority as it is now, or was at the end.';
COMMENT ON COLUMN th_record.run_at IS 'Time that was chosen for the job last.';
COMMENT ON COLUMN th_record.max_attempts IS 'How many executions may fail by now.';
COMMENT ON COLUMN th_finished_job.seq IS 'Number of the job: th_job.seq.';
COMMENT ON COLUMN th_setting.kind IS 'What the row is: paused_queue, owner, schedule or limits.';
COMMENT ON COLUMN th_setting.name IS 'Name of the queue, service or schedule.';
COMMENT ON COLUMN th_setting.paused_since IS 'Since when the queue or schedule has been paused, in microseconds since 1970.';
COMMENT ON COLUMN th_setting.owner IS 'Service that declared the schedule or limits.';
COMMENT ON COLUMN th_setting.limits IS 'Limits of the queue, as JSON.';
COMMENT ON COLUMN th_setting.firings IS 'The last ten slots that were fired, as JSON.';

-- The views of the driver have columns of tables under the same names, and so their comments: from the first of these tables.
DO $copy$
DECLARE
  v record;
BEGIN
  FOR v IN
    SELECT DISTINCT ON (c.relname, a.attname) c.relname AS view, a.attname AS name, d.description AS comment
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    CROSS JOIN unnest('{th_live,th_job,th_finished,th_outcome,th_edge,th_schedule,th_schedule_owner}'::text[]) WITH ORDINALITY AS t (name, ord)
    JOIN pg_attribute b ON b.attrelid = to_regclass(t.name) AND b.attname = a.attname
    JOIN pg_description d ON d.objoid = b.attrelid AND d.classoid = 'pg_class'::regclass AND d.objsubid = b.attnum
    WHERE c.relnamespace = '{schema}'::regnamespace AND c.relname IN ('th_record', 'th_finished_job', 'th_each_edge', 'th_setting')
      AND col_description(c.oid, a.attnum) IS NULL
    ORDER BY c.relname, a.attname, t.ord
  LOOP
    EXECUTE format('COMMENT ON COLUMN %I.%I IS %L', v.view, v.name, v.comment);
  END LOOP;
END $copy$;
