package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

const migrateUp = "gatepost migrate up"

// checkSchema says whether the tables are those of this program. Other tools than
// goose keep their own versions: then the tables speak for themselves.
func checkSchema(ctx context.Context, v *visit) error {
	missing := v.missingTables()
	if len(missing) == len(inventory) {
		v.weakens("schema gatepost", "Gatepost's tables are not in this database.", migrateUp)
		return nil
	}
	present, err := v.q.VersionTable(ctx)
	if err != nil {
		return err
	}
	if !present {
		v.upToDate = true
		v.tellMissing(missing)
		return nil
	}
	// Until the versions are read, as this role may not be allowed to, the tables count.
	v.upToDate = len(missing) == 0
	versions, err := v.q.VersionList(ctx)
	if err != nil {
		return err
	}
	v.judgeVersions(versions, missing)
	return nil
}

func (v *visit) judgeVersions(versions []int64, missing []string) {
	applied := int64(0)
	if len(versions) > 0 {
		applied = slices.Max(versions)
	}
	v.upToDate = applied == latest() && int64(len(versions)) == latest()
	switch {
	case applied == 0 && len(missing) == 0: // another tool made them; goose began, and stopped
		v.upToDate = true
	case applied > latest():
		v.note("gatepost.schema_migrations", fmt.Sprintf("The schema is of version %d, newer than this program, which knows %d: "+
			"it can't say whether the tables are as they should be.", applied, latest()),
			"go install github.com/gatepost/gatepost/cmd/gatepost@latest")
	case !v.upToDate:
		v.weakens("gatepost.schema_migrations", fmt.Sprintf("%d of %d migrations are applied: the schema is too old for this "+
			"version, and parts of it are refused or missing.", len(versions), latest()), migrateUp)
	default:
		v.tellMissing(missing)
	}
}

func (v *visit) missingTables() (missing []string) {
	for _, t := range inventory {
		if !v.plain(t.name) {
			missing = append(missing, t.name)
		}
	}
	return missing
}

func (v *visit) tellMissing(missing []string) {
	for _, name := range missing {
		text := "The table is missing, although its migration counts as applied: it was dropped or renamed."
		if v.tables[name].Kind != "" {
			text = "This is no plain table: Gatepost's statements and locks are made for one."
		}
		v.weakens(qualified(name), text, rebuild()...)
	}
}

// checkColumns compares the columns with the migrations'.
func checkColumns(ctx context.Context, v *visit) error {
	rows, err := v.q.ColumnList(ctx)
	if err != nil {
		return err
	}
	found := map[string][]string{}
	for _, row := range rows {
		column := row.Name + " " + row.Type
		if row.NotNull {
			column += " NOT NULL"
		}
		found[row.TableName] = append(found[row.TableName], column)
	}
	for _, t := range inventory {
		if columns, ok := found[t.name]; ok {
			v.compareColumns(t, columns)
		}
	}
	return nil
}

func (v *visit) compareColumns(t table, found []string) {
	for _, want := range t.columns {
		if slices.Contains(found, want) {
			continue
		}
		name, _, _ := strings.Cut(want, " ")
		v.weakens(qualified(t.name), columnText(name, want, found), columnRemedy(t.name, want, found)...)
	}
	for _, column := range found {
		name, _, _ := strings.Cut(column, " ")
		if !slices.ContainsFunc(t.columns, named(name)) {
			v.note(qualified(t.name), fmt.Sprintf("The column %s is not Gatepost's: a later version may bring one of that name.", name),
				fmt.Sprintf("ALTER TABLE gatepost.%s DROP COLUMN %s;", t.name, name))
		}
	}
}

// named matches a column by its name.
func named(name string) func(string) bool {
	return func(column string) bool { return strings.HasPrefix(column, name+" ") }
}

func columnText(name, want string, found []string) string {
	if i := slices.IndexFunc(found, named(name)); i >= 0 {
		return fmt.Sprintf("The column is %q, and must be %q.", found[i], want)
	}
	return fmt.Sprintf("The column %s is missing.", name)
}

// columnRemedy is exact where only NOT NULL was taken away, or a column that may be NULL.
func columnRemedy(table, want string, found []string) []string {
	name, _, _ := strings.Cut(want, " ")
	if slices.Contains(found, strings.TrimSuffix(want, " NOT NULL")) {
		return []string{fmt.Sprintf("ALTER TABLE gatepost.%s ALTER COLUMN %s SET NOT NULL;", table, name)}
	}
	if slices.Contains(found, want+" NOT NULL") {
		return []string{fmt.Sprintf("ALTER TABLE gatepost.%s ALTER COLUMN %s DROP NOT NULL;", table, name)}
	}
	if !slices.ContainsFunc(found, named(name)) && !strings.HasSuffix(want, " NOT NULL") {
		return []string{fmt.Sprintf("ALTER TABLE gatepost.%s ADD COLUMN %s;", table, want)}
	}
	return rebuild()
}
