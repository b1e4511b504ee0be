import { type DynamicModule, Module, ValidationPipe } from '@nestjs/common';
import { APP_FILTER, APP_GUARD, APP_PIPE } from '@nestjs/core';
import { AttachModule } from './attach/attach.module';
import { BundlesModule } from './bundles/bundles.module';
import { CoreModule, type Outside } from './core.module';
import { DataPlaneModule } from './data-plane/data-plane.module';
import { ExecsModule } from './execs/execs.module';
import { HealthModule } from './health/health.module';
import { HistoryModule } from './history/history.module';
import { AuthGuard } from './http/auth.guard';
import { ErrorFilter } from './http/error.filter';
import { validation } from './http/validation';
import { ApiKeysModule } from './keys/api-keys.module';
import { ListsModule } from './lists/lists.module';
import { LogsModule } from './logs/logs.module';
import { PreviewsModule } from './previews/previews.module';
import { RunnersModule } from './runners/runners.module';
import { SessionsModule } from './sessions/sessions.module';
import { SharesModule } from './shares/shares.module';
import { TimeModule } from './time/time.module';

@Module({})
// biome-ignore lint/complexity/noStaticOnlyClass: Nest takes modules as classes
export class GatewayModule {
  static with(outside: Outside): DynamicModule {
    return {
      module: GatewayModule,
      imports: [
        CoreModule.with(outside),
        SessionsModule,
        ExecsModule,
        LogsModule,
        ListsModule,
        DataPlaneModule,
        AttachModule,
        PreviewsModule,
        HistoryModule,
        SharesModule,
        BundlesModule,
        ApiKeysModule,
        RunnersModule,
        TimeModule,
        HealthModule,
      ],
      providers: [
        { provide: APP_FILTER, useClass: ErrorFilter },
        { provide: APP_GUARD, useClass: AuthGuard },
        { provide: APP_PIPE, useFactory: () => new ValidationPipe(validation) },
      ],
    };
  }
}
