package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one fault.
type mutant struct {
	name     string // of the patch's file
	path     string // of it, absolute
	fault    string
	packages []string // whose tests are to notice
	run      string   // which of their tests, as go test -run; empty: all
}

// read reads the patches of a directory, or those of the names given.
func read(dir string, names []string) ([]mutant, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no patches in %s: run it in the root of the repository", dir)
	}
	var mutants []mutant
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".patch")
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		m, err := readOne(name, path)
		if err != nil {
			return nil, err
		}
		mutants = append(mutants, m)
	}
	if len(names) > len(mutants) {
		return nil, fmt.Errorf("of %v there are only %d in %s", names, len(mutants), dir)
	}
	return mutants, nil
}

// readOne reads the lines above the diff: mutant, packages, run.
func readOne(name, path string) (m mutant, err error) {
	m.name = name
	if m.path, err = filepath.Abs(path); err != nil {
		return m, err
	}
	file, err := os.Open(path)
	if err != nil {
		return m, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "diff ") {
		switch key, value, _ := strings.Cut(lines.Text(), ": "); key {
		case "mutant":
			m.fault = value
		case "packages":
			m.packages = strings.Fields(value)
		case "run":
			m.run = value
		}
	}
	if m.fault == "" || len(m.packages) == 0 {
		return m, fmt.Errorf("%s: the lines \"mutant: \" and \"packages: \" are missing above the diff", path)
	}
	return m, lines.Err()
}

// together is all that the mutants' tests are, once a set of packages: without a mutant
// they must be green.
func together(mutants []mutant) (all []mutant) {
	for _, m := range mutants {
		i := slices.IndexFunc(all, func(o mutant) bool { return slices.Equal(o.packages, m.packages) })
		switch {
		case i < 0:
			m.name = "none"
			all = append(all, m)
		case all[i].run != "" && m.run != "":
			all[i].run += "|" + m.run
		default:
			all[i].run = ""
		}
	}
	return all
}
