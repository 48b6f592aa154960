package pgtemp

// For the tests of this directory: a machine without a server has to be made up.
var (
	UsualFolders = &usualFolders
	NewestFirst  = newestFirst
)
