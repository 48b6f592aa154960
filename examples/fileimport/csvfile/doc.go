// Package csvfile reads the records of a CSV file as the file has them.
//
// What it does not promise: it is no general CSV library. It doesn't guess the delimiter or
// the encoding, it doesn't repair, and it doesn't turn text into types. A damaged record is
// an error with its line; what to do about it is the caller's choice.
//
// encoding/csv is not used because it rewrites \r\n inside quoted fields to \n and hides
// whether a field was quoted: the first changes data on its way into a database, the second
// makes an empty field (NULL) and "" (an empty string) the same.
//
// The format is RFC 4180 with these decisions:
//
//   - LF, CRLF and a lone CR each end a line, also mixed in one file. Inside quotes every
//     byte is kept, and each line end there advances the line number.
//   - The text is strict UTF-8. A byte order mark is stripped.
//   - A line with nothing on it is skipped and counted. A line "" or one of spaces is a record.
//   - The first record is the header; every later record must have as many fields.
//   - A quote may only stand around a whole field, doubled inside it.
package csvfile
