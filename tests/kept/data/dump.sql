-- Each row as JSON behind its table's name. In one transaction that is taken back, so that no planner meets what
-- more.sql makes.
BEGIN;
SET TIME ZONE 'UTC';
\o /dev/null
\i more.sql
\o
SELECT format('SELECT %L || to_json(stored) FROM (SELECT %s FROM %I ORDER BY 1, 2) AS stored',
              tables.name || ' ', string_agg(quote_ident(column_name), ', ' ORDER BY ordinal_position), tables.name)
FROM unnest('{models, clusters, workers, profiles, documents, operations, runs, profile_runs, measurements,
               link_measurements, plans, observations}'::text[]) WITH ORDINALITY AS tables(name, position)
JOIN information_schema.columns ON table_schema = 'public' AND table_name = tables.name AND is_generated = 'NEVER'
GROUP BY tables.name, tables.position ORDER BY tables.position
\gexec
ROLLBACK;
