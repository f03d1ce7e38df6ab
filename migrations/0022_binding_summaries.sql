-- A list of bindings reads no stages and no idle devices: those of thousands of nodes are stored apart, and read whole or not.

-- Read out of the document, so that the two cannot disagree. What is left out is empty.
ALTER TABLE bindings ADD COLUMN summary jsonb NOT NULL GENERATED ALWAYS AS (
    content || '{"stages": [], "idle": []}'::jsonb) STORED;
