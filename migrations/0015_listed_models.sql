-- A list of models reads no text that one of them was imported from: such a text may be megabytes long.

-- Read out of the document, so that the two cannot disagree.
ALTER TABLE models ADD COLUMN listed_source jsonb NOT NULL GENERATED ALWAYS AS (
    CASE WHEN source ? 'document' THEN source || '{"document": ""}'
         WHEN source ? 'config' THEN source || '{"config": ""}'
         ELSE source END) STORED;
