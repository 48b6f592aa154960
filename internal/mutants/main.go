// Mutants puts faults into a copy of the tree, one at a time, and says which test
// notices each. A fault is a patch in the directory patches; a fault that no test
// notices is a missing test.
//
//	go run ./internal/mutants -check           each patch applies and compiles
//	go run ./internal/mutants                  each is put in, and killed by its tests
//	go run ./internal/mutants -some 5          five of them, others each day
//	go run ./internal/mutants -full NAME...    those, against the whole suite
//
// It wants git and go, and a PostgreSQL as the tests do. Exit 1 when a patch doesn't
// apply or compile, when a mutant survives, and when the tests are red without one.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	check := flag.Bool("check", false, "only see that each patch applies and compiles")
	full := flag.Bool("full", false, "run the whole suite against each, not the tests that the patch names")
	some := flag.Int("some", 0, "run so many, picked by the day; 0: all")
	green := flag.Bool("green", false, "take it that the tests are green without a mutant")
	seed := flag.Uint64("seed", uint64(time.Now().Unix()/86400), "picks them")
	flag.Parse()

	mutants, err := read(filepath.Join("internal", "mutants", "patches"), flag.Args())
	if err != nil {
		return err
	}
	if *some > 0 && *some < len(mutants) {
		pick := rand.New(rand.NewPCG(*seed, 0))
		pick.Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
		mutants = mutants[:*some]
		fmt.Printf("seed %d\n", *seed)
	}
	tree, err := copied(ctx)
	if err != nil {
		return err
	}
	defer tree.remove()
	if *check {
		return tree.check(ctx, mutants)
	}
	if *full {
		for i := range mutants {
			mutants[i].packages, mutants[i].run = []string{"./..."}, ""
		}
	}
	if !*green {
		if err := tree.green(ctx, mutants); err != nil {
			return err
		}
	}
	return tree.kill(ctx, mutants)
}

// check sees that each can be put in, and tells of those that can't.
func (t *tree) check(ctx context.Context, mutants []mutant) error {
	bad := 0
	for _, m := range mutants {
		err := t.with(ctx, m, func() error {
			_, err := t.command(ctx, "go", slices.Concat([]string{"build"}, m.packages)...)
			return err
		})
		if err != nil {
			bad++
			fmt.Printf("%s: %v\n", m.name, err)
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d patches don't apply or compile: make them anew, see internal/mutants/README.md", bad, len(mutants))
	}
	fmt.Printf("%d patches apply and compile\n", len(mutants))
	return nil
}

// green runs the tests without a mutant: what is red then is killed by nobody.
func (t *tree) green(ctx context.Context, mutants []mutant) error {
	for _, m := range together(mutants) {
		red, err := t.test(ctx, m)
		if err != nil {
			return err
		}
		if red.killed() {
			return fmt.Errorf("red without any mutant: %s", red)
		}
	}
	return nil
}

// kill runs the tests with each mutant, and tells which test notices it.
func (t *tree) kill(ctx context.Context, mutants []mutant) error {
	survivors, broken := 0, 0
	fmt.Println("| mutant | fault | killed by | s |\n|---|---|---|---:|")
	for _, m := range mutants {
		var red verdict
		err := t.with(ctx, m, func() (err error) {
			red, err = t.test(ctx, m)
			return err
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			broken++
			fmt.Printf("%s: %v\n", m.name, err)
			continue
		case !red.killed():
			survivors++
		}
		fmt.Printf("| %s | %s | %s | %.0f |\n", m.name, m.fault, red, red.took.Seconds())
	}
	if survivors+broken > 0 {
		return fmt.Errorf("of %d, %d survive: each is a missing test; %d can't be tried", len(mutants), survivors, broken)
	}
	return nil
}
