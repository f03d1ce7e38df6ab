-- A plan for several kinds of devices rests on a profile of each: `profile_id` is one of them, these are the others.

-- Of a plan's content. As ids.
CREATE FUNCTION plan_other_profiles(content jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(array_agg(DISTINCT substr(named, length('profiles/') + 1)), '{}')
    FROM jsonb_array_elements_text(coalesce(content -> 'other_profiles', '[]')) AS named
$$;

-- Read out of the document, so that the two cannot disagree.
ALTER TABLE plans
    ADD COLUMN other_profiles text[] NOT NULL GENERATED ALWAYS AS (plan_other_profiles(content)) STORED;

CREATE INDEX plans_by_other_profiles ON plans USING gin (other_profiles);
