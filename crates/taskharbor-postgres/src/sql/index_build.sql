-- Returns the command that builds the index, unless the step is done.
SELECT $index${definition}$index$ WHERE EXISTS (SELECT FROM {schema}.th_meta WHERE step < {number})
