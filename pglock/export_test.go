package pglock

// Spread is over how much time the waiters of a lapsed lease come back.
var Spread = spread
