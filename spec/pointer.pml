/*
 * Which clients touch lock.exclusive, which this model calls the pointer. The intent is
 * the ground truth of our own clients; the pointer is the only object that a client of
 * the original protocol has and looks at. So a shared acquirer passes a stale pointer,
 * and leaves it where it is: only exclusive acquirers overwrite it, and only its owner
 * deletes it.
 *
 * At the start there is a stale pointer. Its owner is dead; or, with RESUMES, it is a
 * holder of ours that has lost its lock, and resumes it.
 *
 * Four assertions:
 * 1. Of our own clients none is in beside an exclusive one.
 * 2. No client that comes after a client of the original protocol has entered gets in
 *    beside it. (One that comes before does: that is the hole of original.pml.)
 * 3. RESUMES: the holder doesn't resume a lock that another of ours has passed.
 * 4. TWO: there is another exclusive client of ours instead of one of the original
 *    protocol. While either holds, the pointer is its own.
 *
 * All requests are answered: lock.pml has those that aren't.
 */

/* The pointer: none, the stale one, or that of a live client. */
mtype = { NONE, STALE, ORIGINAL, EXCLUSIVE, SECOND, HOLDER };
mtype pointer = STALE;
#define free(p) (p == NONE || p == STALE)

bit flag;                     /* of the shared acquirer */
bit intent[2];                /* of the exclusive acquirer, and with TWO of another one */
bit oldIntent;                /* of the holder: stale */
bit newIntent;                /* and that under which it resumes */

bit sharedIn, originalIn, holderIn;
byte exclusiveIn;
bit passed;                   /* another of ours has entered since the holder lost */

proctype Shared() {
	bit stale, leftover;

	flag = 1;
	if    /* the look */
	:: atomic { free(pointer) -> leftover = (pointer == STALE) }
	:: atomic { !free(pointer) -> goto withdraw }
	fi;
	if
	:: atomic { intent[0] || intent[1] || newIntent -> goto withdraw }
	:: atomic { !intent[0] && !intent[1] && !newIntent -> stale = oldIntent }
	fi;
#ifndef NO_REAP
	if
	:: atomic { stale -> oldIntent = 0 }
	:: atomic { !stale -> skip }
	fi;
#endif
#ifdef SHARED_DELETES
	if
	:: atomic { leftover -> pointer = NONE }
	:: atomic { !leftover -> skip }
	fi;
#endif
	atomic { sharedIn = 1; passed = 1; assert(!exclusiveIn && !holderIn) };
	sharedIn = 0;
withdraw:
	flag = 0
}

/* The owner deletes its pointer with a condition, or right after a look at it. */
inline takeDown(mine) {
#if defined(BLIND_DELETE)
	pointer = NONE
#elif defined(PLAIN_DELETE)
	if
	:: atomic { pointer == mine -> skip }; pointer = NONE
	:: atomic { pointer != mine -> skip }
	fi
#else
	atomic { if :: pointer == mine -> pointer = NONE :: else fi }
#endif
}

proctype Exclusive(byte me; mtype mine) {
	mtype seen = NONE;
	bit claimed;

	intent[me] = 1;
#ifdef CLAIM_FIRST
	if    /* before any look, with a condition that is kept */
	:: atomic { pointer == NONE -> pointer = mine; claimed = 1 }
	:: atomic { pointer != NONE -> skip }
	fi;
#endif
	if
	:: atomic { free(pointer) || claimed && pointer == mine -> seen = pointer }
	:: atomic { !free(pointer) && !(claimed && pointer == mine) -> goto undo }
	fi;
	if
	:: atomic { flag || intent[1-me] -> goto undo }
	:: atomic { !flag && !intent[1-me] -> skip }
	fi;
	if
	:: atomic { oldIntent -> oldIntent = 0 }
	:: atomic { !oldIntent -> skip }
	fi;
	if    /* claim, with a condition or right after a look */
#ifdef PLAIN_CLAIM
	:: atomic { pointer == seen -> skip }; pointer = mine; claimed = 1
#else
	:: atomic { pointer == seen -> pointer = mine; claimed = 1 }
#endif
	:: atomic { pointer != seen -> goto undo }
	fi;
	if    /* and the look that lets it in */
	:: atomic { pointer == mine -> skip }
	:: atomic { pointer != mine -> goto undo }
	fi;
	if
	:: atomic { flag || newIntent || intent[1-me] -> goto undo }
	:: atomic { !flag && !newIntent && !intent[1-me] -> skip }
	fi;
	atomic { exclusiveIn++; passed = 1; assert(!sharedIn && !holderIn && exclusiveIn == 1) };
#ifdef TWO
	assert(pointer == mine);
#endif
	exclusiveIn--;
	if    /* both are deleted at once */
	:: takeDown(mine)
	:: intent[me] = 0; takeDown(mine)
	fi;
	goto withdraw;
undo:	if
	:: atomic { claimed -> skip }; takeDown(mine)
	:: atomic { !claimed -> skip }
	fi;
withdraw:
	intent[me] = 0
}

#ifdef RESUMES
proctype Holder() {
	newIntent = 1;
	if    /* its own pointer, or it is lost */
	:: atomic { pointer == STALE -> pointer = HOLDER }
	:: atomic { pointer != STALE -> goto withdraw }
	fi;
	if
	:: atomic { pointer == HOLDER -> skip }
	:: atomic { pointer != HOLDER -> goto withdraw }
	fi;
	if
	:: atomic { flag || intent[0] -> goto undo }
	:: atomic { !flag && !intent[0] -> skip }
	fi;
#ifndef BY_THE_POINTER
	if
	:: atomic { oldIntent -> skip }
	:: atomic { !oldIntent -> goto undo }
	fi;
#endif
	oldIntent = 0;
	atomic { holderIn = 1; assert(!passed && !sharedIn && !exclusiveIn) };
	holderIn = 0;
undo:	takeDown(HOLDER);
withdraw:
	newIntent = 0
}
#else

/* The original protocol looks, writes, and verifies; refreshes without a look; and deletes. */
proctype Original() {
	if
	:: atomic { free(pointer) -> skip }
	:: atomic { !free(pointer) -> goto out }
	fi;
	if
	:: atomic { !flag -> skip }
	:: atomic { flag -> goto out }
	fi;
	pointer = ORIGINAL;
	if
	:: atomic { pointer == ORIGINAL -> originalIn = 1 }
	:: atomic { pointer != ORIGINAL -> goto out }
	fi;
	do
	:: pointer = ORIGINAL
	:: break
	od;
	originalIn = 0;
	pointer = NONE;
out:	skip
}

/* Third is a client of any kind that comes after that. */
proctype Third() {
end:	originalIn;
	if
	:: atomic { free(pointer) -> assert(!originalIn) }
	:: atomic { !free(pointer) -> skip }
	fi
}
#endif

init {
	atomic {
		run Shared(); run Exclusive(0, EXCLUSIVE);
#if defined(RESUMES)
		oldIntent = 1;
		run Holder()
#elif defined(TWO)
		run Exclusive(1, SECOND)
#else
		run Original(); run Third()
#endif
	}
}
