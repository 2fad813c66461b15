//! Who may do what: roles, tokens, sessions, hosts and origins.
