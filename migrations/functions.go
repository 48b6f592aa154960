package migrations

import (
	"regexp"
	"strings"
)

// A Function is one of the schema's as the migrations leave it.
type Function struct {
	Name      string // without the schema
	Arguments string // names and types, as pg_get_function_identity_arguments shows them
	Language  string
	Volatile  string // IMMUTABLE, STABLE or VOLATILE
	Strict    bool
	Definer   bool   // SECURITY DEFINER
	Config    string // what SET says, as in pg_proc.proconfig; empty without one
	Body      string // as in pg_proc.prosrc
	create    string
}

var (
	createFunction = regexp.MustCompile(`(?s)CREATE (?:OR REPLACE )?FUNCTION gatepost\.(\w+)\((.*?)\)((?: RETURNS \w+)?\nLANGUAGE (\w+)(.*?))\nAS \$\$(.*?)\$\$;`)
	revokeFunction = regexp.MustCompile(`(?s)REVOKE ALL ON FUNCTION[^;]*FROM PUBLIC;`)
	argumentValue  = regexp.MustCompile(` DEFAULT [^,]*`)
	settingOf      = regexp.MustCompile(`SET (\w+) = (.*)`)
	volatility     = regexp.MustCompile(`\b(IMMUTABLE|STABLE)\b`)
)

// Functions returns the functions of the schema at the latest version, for who wants to
// know whether a database still has them. They are read from the migrations; a test
// compares them with a database.
func Functions() ([]Function, error) {
	text, err := SQL()
	if err != nil {
		return nil, err
	}
	var all []Function
	at := map[string]int{}
	for _, m := range createFunction.FindAllStringSubmatch(text, -1) {
		f := function(m)
		i, known := at[f.Name+"("+f.Arguments]
		if !known {
			i = len(all)
			at[f.Name+"("+f.Arguments] = i
			all = append(all, f)
		}
		all[i] = f
	}
	return all, nil
}

func function(m []string) Function {
	f := Function{
		Name: m[1], Arguments: argumentValue.ReplaceAllString(m[2], ""), Language: m[4], Volatile: "VOLATILE",
		Strict: strings.Contains(m[5], " STRICT"), Definer: strings.Contains(m[5], " SECURITY DEFINER"), Body: m[6],
		create: "CREATE OR REPLACE FUNCTION gatepost." + m[1] + "(" + m[2] + ")" + m[3] + "\nAS $$" + m[6] + "$$;\n",
	}
	if v := volatility.FindString(m[5]); v != "" {
		f.Volatile = v
	}
	if set := settingOf.FindStringSubmatch(m[5]); set != nil {
		f.Config = set[1] + "=" + set[2]
	}
	return f
}

// FunctionsSQL returns, as SQL, what makes all functions of the schema again as the
// migrations leave them, and keeps the triggers and privileges that hang on them. It is
// for a database at the latest version, and its owner.
func FunctionsSQL() (string, error) {
	all, err := Functions()
	if err != nil {
		return "", err
	}
	text, err := SQL()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("BEGIN;\n")
	for _, f := range all {
		b.WriteString("\n" + f.create)
	}
	b.WriteString("\n" + strings.Join(revokeFunction.FindAllString(text, -1), "\n") + "\n\nCOMMIT;\n")
	return b.String(), nil
}
