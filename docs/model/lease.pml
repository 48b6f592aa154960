/* The lease and the fence of gatepost.leases, small enough to read and to be checked in
 * every order: bash docs/model/check.sh. README.md says what it leaves out.
 *
 * A pause, a garbage collection and a lost packet are the same here: between two steps of
 * a process the others take any number of theirs. A statement is one step, because what
 * it does under the row's lock nobody sees before it is done.
 *
 * Each of these takes one guard out, and the checker must find what the guard is for:
 *   NO_FENCE        a write by whoever believes to hold the lease
 *   PLAIN_SELECT    the fence reads the row and locks nothing
 *   NO_NONCE        the fence compares the token alone
 *   NO_EXPIRY_TEST  the fence does not ask whether the lease has expired
 *   NO_LIMIT        no timeout ends a fenced transaction
 * LIVE asks whether a waiter gets an expired lease, instead of looking for stale writes.
 */

#define CLIENTS 3
#define GRANTS 6 /* acquisitions in a run */
#define TTL 2    /* ticks of the database's clock, each of any length */

/* The row of the one name; it is not there at the beginning. */
byte token;      /* 0: there is no row */
byte nonce;      /* 0: nobody holds it */
byte left;       /* expires_at - clock_timestamp(); 0: expired */
byte sharers;    /* transactions that have the row FOR KEY SHARE */

/* What no statement can see. */
byte grants;     /* acquisitions so far, and the nonce of the last: none is used twice */
bool granted;    /* LIVE: the waiter has the lease */

/* Rule A: free or expired, and the new token makes it a key update, which a FOR KEY
 * SHARE holds off: SKIP LOCKED, so that is "busy" and not a wait. */
#define TAKEABLE ((nonce == 0 || left == 0) && sharers == 0)

/* token = greatest(previous + 1, clock). On a row that was kept the first decides; on a
 * new one the clock, which may have been set back, so it can repeat itself here. */
inline take(t, n) {
    grants++;
    if
    :: token > 0 -> token++
    :: token == 0 -> token = 1
    :: token == 0 -> token = 2
    fi;
    nonce = grants; left = TTL; t = token; n = nonce;
    printf("%d acquires: token %d, nonce %d\n", _pid, t, n)
}

#define HELD(t, n) (token == t && nonce == n && left > 0)

/* Rule F: token and nonce are the current ones, and the lease has not expired. */
#if defined(NO_FENCE)
#define PASSES(t, n) true
#elif defined(NO_NONCE)
#define PASSES(t, n) (token == t && nonce != 0 && left > 0)
#elif defined(NO_EXPIRY_TEST)
#define PASSES(t, n) (token == t && nonce == n)
#else
#define PASSES(t, n) HELD(t, n)
#endif

#if defined(NO_FENCE) || defined(PLAIN_SELECT)
#define LOCKS 0
#else
#define LOCKS 1 /* FOR KEY SHARE, until the transaction ends */
#endif

/* A waiter that starves gets all the luck: while it could take the lease, nobody begins. */
#ifdef NO_EXPIRY_TEST
#define MAY_BEGIN (!TAKEABLE)
#else
#define MAY_BEGIN true
#endif

/* A fenced transaction: BEGIN with the fence; the work; COMMIT or ROLLBACK. A write is
 * stale if there was a later acquisition when it commits. */
inline fenced(t, n) {
    atomic {
        n != 0 && MAY_BEGIN ->
        if
        :: PASSES(t, n) -> sharers = sharers + LOCKS; printf("%d begins: token %d may write\n", _pid, t)
        :: else -> printf("%d is refused: token %d\n", _pid, t); t = 0; n = 0
        fi
    }
    if
    :: n == 0
    :: n != 0 -> /* the work, which may take long: the transaction's limits end it */
#ifdef NO_LIMIT
        if :: skip :: skip -> printf("%d hangs in its transaction\n", _pid); false fi;
#endif
        if
        :: atomic { sharers = sharers - LOCKS; printf("%d rolls back\n", _pid) }
        :: atomic {
            sharers = sharers - LOCKS;
            printf("%d commits its write: token %d, nonce %d; the last acquisition is %d\n", _pid, t, n, grants);
            assert(n == grants)
           }
        fi
    fi
}

/* Somebody who wants the lease, and who believes to hold it while n is not 0. */
proctype Client() {
    byte t, n;
end:
    do
    :: atomic { n == 0 && grants < GRANTS && TAKEABLE -> take(t, n) }
    :: fenced(t, n)
    /* Rule R: by token and nonce, and never back to life. It passes a FOR KEY SHARE. */
    :: atomic { n != 0 -> if :: HELD(t, n) -> left = TTL :: else -> t = 0; n = 0 fi }
    /* Release: by token and nonce; it changes no key column, so it passes too. */
    :: atomic { n != 0 -> if :: token == t && nonce == n -> nonce = 0; left = 0 :: else fi; t = 0; n = 0 }
    /* Rule L: the local timer, which a pause can hold up for ever. */
    :: atomic { n != 0 -> t = 0; n = 0 }
    od
}

/* Rule T: only the database's clock decides, and it waits for nobody. */
proctype Clock() {
end:
    do :: atomic { left > 0 -> left--; if :: left == 0 -> printf("the lease expires\n") :: else fi } od
}

/* The garbage collector deletes a row that is free, or long expired, and not locked. */
proctype GC() {
end:
    do :: atomic { token > 0 && TAKEABLE -> token = 0; nonce = 0; left = 0; printf("the row is collected\n") } od
}

/* LIVE: two workers that were handed the sequencer of a holder that no longer renews. */
proctype Worker(byte t; byte n) {
    do :: n == 0 -> break :: fenced(t, n) od
}

proctype Waiter() {
    byte t, n;
    do
    :: atomic { TAKEABLE -> take(t, n); granted = true; break }
    :: else -> skip /* busy: it polls */
    od
}

#ifdef LIVE
init { byte t, n; atomic { take(t, n); run Worker(t, n); run Worker(t, n); run Clock(); run Waiter() } }
ltl waiter { [] (left == 0 -> <> granted) }
#else
init { byte i; atomic { for (i : 1 .. CLIENTS) { run Client() } run Clock(); run GC() } }
#endif
