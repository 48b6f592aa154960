package pgtemp

import "maps"

// settings are the server's, those of the caller over our own.
func (o *Options) settings() map[string]string {
	all := map[string]string{
		"max_connections":  "200",
		"log_min_messages": "warning",
	}
	if !o.Durable {
		maps.Copy(all, map[string]string{
			"fsync":            "off",
			"full_page_writes": "off",
			"max_wal_size":     "256MB", // the data may live in memory
		})
	}
	maps.Copy(all, o.Settings)
	return all
}
