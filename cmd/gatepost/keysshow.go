package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/operator"
	"github.com/spf13/cobra"
)

func keysShowCommand(conn *connection) *cobra.Command {
	var asJSON, body bool
	var calls []string
	cmd := &cobra.Command{
		Use:   "show OPERATION SCOPE KEY",
		Short: "Show what is stored of one key: its state, its reply, its steps",
		Long: `Show what is stored of one key: its state, and of its reply the status, the
headers and the size; of an operation in lease mode also which steps are
finished.

EXTERNAL is the idempotency key that the operation sends along with its call to
another system (ExternalKey in Go): ask there under it whether the effect of a
claim in doubt happened. Where the operation makes several calls, --call is the
name that it gives to the one that is meant.

--body prints the stored body instead, byte for byte; on a terminal, what a
terminal would act on is escaped. With --json it is in the object, in base64.

It only reads. What a header holds that isn't printable ASCII is shown as it is
stored, as "base64:...". Exit codes: 1 when there is no such key.`,
		Example: `  gatepost keys show payments.charge acme 9a1f27c0
  gatepost keys show payments.charge acme 9a1f27c0 --body | jq .`,
		Args: usage(cobra.ExactArgs(3)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return conn.with(cmd.Context(), func(ctx context.Context, db database) error {
				if body && !asJSON {
					return printBody(ctx, cmd, db, keyOf(args))
				}
				return printRecord(ctx, cmd, db, keyOf(args), calls, asJSON, body)
			})
		},
	}
	cmd.Flags().BoolVar(&body, "body", false, "the stored body")
	cmd.Flags().StringArrayVar(&calls, "call", nil, "the `name` of the call that EXTERNAL is for")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printBody(ctx context.Context, cmd *cobra.Command, db database, key idem.Key) error {
	body, err := operator.Body(ctx, db.pool, key)
	if err != nil {
		return noSuchKey(ctx, db, key, err)
	}
	if cli.ScreenOf(cmd.OutOrStdout()).Terminal {
		return printLines(cmd.OutOrStdout(), printableLines(string(body)))
	}
	_, err = cmd.OutOrStdout().Write(body)
	return err
}

func printRecord(ctx context.Context, cmd *cobra.Command, db database, key idem.Key, calls []string, asJSON, body bool) error {
	r, err := operator.RecordOf(ctx, db.pool, key)
	if err != nil {
		return noSuchKey(ctx, db, key, err)
	}
	if !asJSON {
		screen := cli.ScreenOf(cmd.OutOrStdout())
		return printLines(screen.W, draw(screen, recordFields(r, key.ExternalKey(calls...))))
	}
	out := recordJSONOf(r)
	out.ExternalKey = key.ExternalKey(calls...)
	if body {
		if out.Body, err = operator.Body(ctx, db.pool, key); err != nil {
			return noSuchKey(ctx, db, key, err)
		}
	}
	return json.NewEncoder(cmd.OutOrStdout()).Encode(out)
}

// noSuchKey says of a key that isn't there where it may be: under another operation or
// scope, perhaps.
func noSuchKey(ctx context.Context, db database, key idem.Key, err error) error {
	if !errors.Is(err, idem.ErrNotFound) {
		return err
	}
	// What is wrong is the key: an error here would only hide it.
	names, _ := operator.KeyOperations(ctx, db.pool, "", pageSize)
	typed := key.Operation
	if slices.Contains(names, key.Operation) {
		names, _ = operator.KeyScopes(ctx, db.pool, key.Operation, pageSize)
		typed = string(key.Scope)
	}
	if question := cli.DidYouMean(typed, names); question != "" && !slices.Contains(names, typed) {
		return fmt.Errorf("no such key of %s; %s", key, question)
	}
	return fmt.Errorf("no such key of %s: it was never used, was collected after it expired, or its transaction is still open; the keys that there are: gatepost keys ls", key)
}

// printableLines are those of a text, with what a terminal would act on escaped.
func printableLines(text string) []string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = cli.Printable(strings.TrimSuffix(line, "\r"))
	}
	return lines
}

func printLines(w io.Writer, lines []string) error {
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

func recordFields(r operator.Record, external string) []field {
	fields := []field{
		{"OPERATION", cli.Printable(r.Operation), cli.Plain},
		{"SCOPE", cli.Printable(string(r.Scope)), cli.Plain},
		{"KEY", keyText(r.Key.Key.Key, false), cli.Plain},
		{"STATE", stateText(r.Key), stateStyle(r.Key)},
		{"ATTEMPT", fmt.Sprint(r.Attempt), cli.Plain},
		{"CREATED", momentText(r.CreatedAt, r.Age), cli.Plain},
		{"EXPIRES", expiryText(r.Key), expiryStyle(r.Key)},
		{"REQUEST", fmt.Sprintf("fingerprint %s…, version %d", hex.EncodeToString(r.Fingerprint[:8]), r.FingerprintVersion), cli.Plain},
	}
	if r.State != operator.KeyDone && r.State != operator.KeyTombstone {
		fields = append(fields, field{"EXTERNAL", external, cli.Plain})
	} else {
		fields = append(fields, replyFields(r)...)
	}
	if len(r.Steps) > 0 {
		fields = append(fields, field{"STEPS", stepsText(r), cli.Plain})
	}
	return fields
}

func replyFields(r operator.Record) (fields []field) {
	if r.Status != nil {
		fields = append(fields, field{"STATUS", fmt.Sprint(*r.Status), cli.Plain})
	}
	if len(r.Header) > 0 {
		fields = append(fields, field{"HEADERS", headersText(r.Header), cli.Plain})
	}
	body := cli.Number(r.BodySize) + " bytes"
	switch {
	case r.State == operator.KeyTombstone:
		body += ", not kept"
	case r.BodySize == 0:
		body = "empty"
	case r.Codec != "":
		body += " of " + cli.Printable(r.Codec) + "; --body prints it"
	default:
		body += "; --body prints it"
	}
	return append(fields, field{"BODY", body, cli.Plain})
}

// stateText is the state as a sentence.
func stateText(k operator.Key) string {
	switch k.State {
	case operator.KeyRunning:
		return "running; its claim lapses in " + cli.Duration(k.LeaseLeft) + " unless renewed"
	case operator.KeyInDoubt:
		return "in doubt: its claim lapsed " + cli.Duration(k.LeaseLeft) + " ago, and whether its effect happened isn't known"
	case operator.KeyTombstone:
		return "tombstone: done " + doneText(k) + ", and the reply was too large to keep"
	case operator.KeyReleased:
		return "released: the next call with the same request runs"
	default:
		return "done " + doneText(k)
	}
}

// doneText is how long ago it was done.
func doneText(k operator.Key) string {
	return cli.Duration(k.Now().Sub(k.DoneAt)) + " ago"
}

func expiryText(k operator.Key) string {
	if k.Left <= 0 {
		return fmt.Sprintf("expired %s ago: it counts as absent, and gatepost gc removes it", cli.Duration(k.Left))
	}
	return fmt.Sprintf("%s, in %s", cli.Clock(k.ExpiresAt), cli.Duration(k.Left))
}

func momentText(t time.Time, ago time.Duration) string {
	return fmt.Sprintf("%s, %s ago", cli.Clock(t), cli.Duration(ago))
}
