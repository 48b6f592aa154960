package main

import "github.com/gatepost/gatepost/internal/incident"

// demo is the replay of the incident.
func demo(conn *connection) incident.Program {
	return incident.Program{
		Name: "gatepost",
		URL:  &conn.url,
		Next: `
What to do next: "gatepost migrate up" puts the tables into your database. In
Go, InsertOnce, CopyOnce and Do of package idem are (3), and InTx of package
pglock is (2): README.md shows them. "gatepost bench" measures what each costs.`,
	}
}
