/*
 * How an acquirer finds out, while it puts its flag, whether the store keeps If-None-Match:
 * it sends three puts of one new key without waiting for their answers, two with the condition,
 * and a plain one unless one of the two is known to be taken by then. The store heeds the condition; or IGNORES: it takes every put. Each put is applied now, or
 * late, or never, and its answer arrives or is lost.
 *
 * Two assertions:
 * 1. A store that takes every put isn't taken for one that keeps the condition.
 * 2. One that heeds it, and answers both puts that have it, is.
 */

#define UNANSWERED 0          /* also by an answer that says nothing: 409, 429, 503 */
#define TAKEN 1
#define REFUSED 2
byte answer[3];
byte over;
bit stored;                   /* the flag */

proctype Put(byte i) {
	if
	:: atomic { i == 0 || !stored -> stored = 1; answer[i] = TAKEN }
#ifdef IGNORES
	:: atomic { i > 0 && stored -> answer[i] = TAKEN }
#else
	:: atomic { i > 0 && stored -> answer[i] = REFUSED }
#endif
	:: skip               /* it is lost, or applied when all is over */
	fi;
	if
	:: skip
	:: answer[i] = UNANSWERED
	fi;
	over++
}

#if defined(ONE_PUT)
#define proven (answer[1] == REFUSED)
#elif defined(ANY_ANSWER)
#define proven (answer[1] != UNANSWERED || answer[2] != UNANSWERED)
#else
#define proven ((answer[1] == REFUSED || answer[2] == REFUSED) && !(answer[1] == TAKEN && answer[2] == TAKEN))
#endif

init {
	atomic {
		if
		:: run Put(0)
		:: over++               /* it isn't sent */
		fi;
		run Put(1);
#ifdef ONE_PUT
		over++; answer[2] = REFUSED
#else
		run Put(2)
#endif
	};
	over == 3;
#ifdef IGNORES
	assert(!proven)
#else
	assert(answer[1] == UNANSWERED || answer[2] == UNANSWERED || proven)
#endif
}
