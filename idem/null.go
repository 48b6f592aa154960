package idem

import (
	"database/sql/driver"
	"reflect"
)

// isNull says whether pgx writes a value as NULL: nil, a nil pointer, slice or map, and
// what says so itself, as the types of pgtype and database/sql do.
func isNull(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Func, reflect.Chan:
		if r.IsNil() {
			return true
		}
	default:
	}
	valuer, ok := v.(driver.Valuer)
	if !ok {
		return false
	}
	value, err := valuer.Value()
	return err == nil && value == nil
}
