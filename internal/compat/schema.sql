-- A table of an application that is not written in pgx.
CREATE TABLE notes (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    text text NOT NULL
);
