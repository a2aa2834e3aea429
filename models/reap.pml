/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reap.pml: names of dead processes are removed, those of live ones never (src/own.c, src/reap.c).
 *
 * Directory entry `name` -> inode; per-inode life lock (holder pid+1 or 0). NOWN processes that want the
 * name, NREAP that remove it if its owner is dead. A crash can hit any process between any two steps:
 * kernel drops its locks, name stays.
 *
 * Asserted: a name that is removed is not of a live owner; one owner at a time; who runs has its name;
 * when all are dead one more reaper leaves nothing.
 *
 * Mutants, each of which must fail: MUT=1 no look at whether the name is still of the locked inode; MUT=2
 * the lock is probed, not taken; MUT=3 the name is given before the lock is taken.
 */
#define NI 10
#define NONE 255
byte name = NONE;
byte lk[NI];
bool live[NI];
byte nxt = 0;
byte running = 0;
bool crash[8];
byte fin = 0;
#ifndef MUT
#define MUT 0
#endif
#ifndef NOWN
#define NOWN 2
#endif
#ifndef NREAP
#define NREAP 2
#endif
inline dropall() { q=0; do :: q<NI -> if :: lk[q]==_pid+1 -> lk[q]=0 :: else fi; q++ :: else -> break od; q=0 }
inline reap(res) {
  if
  :: atomic { name==NONE -> res=0 }
  :: atomic { name!=NONE -> ino=name };            /* openat */
#if MUT==2
     if :: atomic { lk[ino]!=0 -> res=1 }           /* probe only */
     :: atomic { lk[ino]==0 -> skip };
#else
     if :: atomic { lk[ino]!=0 -> res=1 }           /* F_SETLK life */
     :: atomic { lk[ino]==0 -> lk[ino]=_pid+1 };
#endif
#if MUT!=1
       if :: atomic { name!=ino -> skip }           /* fstat vs fstatat */
       :: atomic { name==ino -> skip };
          atomic { assert(name==NONE || !live[name]); name=NONE }   /* unlinkat */
       fi;
#else
       atomic { assert(name==NONE || !live[name]); name=NONE };
#endif
       atomic { res=0; if :: lk[ino]==_pid+1 -> lk[ino]=0 :: else fi }
     fi
  fi
}
active [NREAP] proctype Reaper() { byte ino, r, q;
  { reap(r); } unless { crash[_pid]; atomic { dropall() } };
  fin++ }
active [NOWN] proctype Owner() { byte ino, my, r, tries, q; bool pub;
 { do
   :: tries>=2 -> break
   :: tries<2 -> tries++;
      atomic { my=nxt; nxt++; assert(nxt<NI) };     /* O_TMPFILE */
#if MUT!=3
      lk[my]=_pid+1;                                 /* lock before publish */
#endif
      if
      :: atomic { name==NONE -> name=my; live[my]=true; pub=true; running++; assert(running<=1) };   /* linkat */
#if MUT==3
         lk[my]=_pid+1;
#endif
         assert(name==my);                           /* running: never loses its name */
         atomic { live[my]=false; pub=false; running--; };
         if :: atomic { name==my -> name=NONE } :: atomic { name!=my -> skip } fi;
         lk[my]=0; break
      :: atomic { name!=NONE -> lk[my]=0 };          /* EEXIST */
         reap(r);
         if :: r==1 -> break :: else -> skip fi
      fi
   od } unless { crash[_pid]; atomic { if :: pub -> live[my]=false; pub=false; running-- :: else fi; dropall() } };
 fin++ }
active proctype Killer() { byte k; do :: k<NREAP+NOWN -> if :: crash[k]=true :: skip fi; k++ :: else -> break od }
active proctype Final() { byte ino, r, q; (fin==NREAP+NOWN); reap(r); assert(name==NONE) }
